#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <vector>
#include <algorithm>
#define CK(x) do{auto e_=(x); if(e_){printf("error %d line %d\n",(int)e_,__LINE__);exit(1);}}while(0)
typedef unsigned u32;
constexpr int L=512,P=64,HB=128;
__device__ __forceinline__ float wsum(float x){ for(int d=16;d;d/=2) x+=__shfl_xor_sync(~0u,x,d); return x; }
__device__ __forceinline__ float wmax(float x){ for(int d=16;d;d/=2) x=fmaxf(x,__shfl_xor_sync(~0u,x,d)); return x; }
__device__ __forceinline__ void philox(u32 b,u32 (&x)[4]){ x[0]=b;x[1]=0;x[2]=1;x[3]=3; u32 k0=77,k1=5;
 #pragma unroll
 for(int r=0;r<7;++r){ u32 h0=__umulhi(0xD2511F53u,x[0]), l0=0xD2511F53u*x[0], h1=__umulhi(0xCD9E8D57u,x[2]), l1=0xCD9E8D57u*x[2]; x[0]=h1^x[1]^k0; x[1]=l1; x[2]=h0^x[3]^k1; x[3]=l0; k0+=0x9E3779B9u; k1+=0xBB67AE85u; } }
// a warp a row of 512: 16 a lane as 2x8
template<bool kBack> __global__ __launch_bounds__(256) void soft(const __half* s,const __half* da,__half* out,int rows,int base){
  int row=blockIdx.x*8+threadIdx.x/32; if(row>=rows) return; int lane=threadIdx.x%32; const uint4* p=(const uint4*)(s+(size_t)row*L); float x[16];
  #pragma unroll
  for(int i=0;i<2;++i){ uint4 v=p[lane+32*i]; const __half2*h=(const __half2*)&v; for(int j=0;j<4;++j){float2 f=__half22float2(h[j]); x[i*8+2*j]=f.x; x[i*8+2*j+1]=f.y;} }
  float g[16]; if(kBack){ const uint4* q=(const uint4*)(da+(size_t)row*L);
  #pragma unroll
  for(int i=0;i<2;++i){ uint4 v=q[lane+32*i]; const __half2*h=(const __half2*)&v; for(int j=0;j<4;++j){float2 f=__half22float2(h[j]); g[i*8+2*j]=f.x; g[i*8+2*j+1]=f.y;} } }
  float m=x[0]; for(int i=1;i<16;++i) m=fmaxf(m,x[i]); m=wmax(m); float sum=0;
  #pragma unroll
  for(int i=0;i<16;++i){ x[i]=exp2f((x[i]-m)*1.4427f); sum+=x[i]; } sum=wsum(sum); float r=1/sum;
  float dot=0;
  #pragma unroll
  for(int i=0;i<2;++i){ u32 w[4]; philox((u32)(((size_t)(row+base)*L+(lane+32*i)*8)/8),w);
    #pragma unroll
    for(int j=0;j<8;++j){ u32 d=(j&1)?w[j/2]:w[j/2]<<16; bool keep=d>=(6554u<<16); if(kBack){ x[i*8+j]*=r; g[i*8+j]=keep?g[i*8+j]*1.111f:0; dot+=g[i*8+j]*x[i*8+j]; } else x[i*8+j]=keep?x[i*8+j]*r*1.111f:0; } }
  if(kBack){ dot=wsum(dot);
  #pragma unroll
  for(int i=0;i<16;++i) x[i]=x[i]*(g[i]-dot); }
  uint4* o=(uint4*)(out+(size_t)row*L);
  #pragma unroll
  for(int i=0;i<2;++i){ uint4 v; __half2*h=(__half2*)&v; for(int j=0;j<4;++j) h[j]=__floats2half2_rn(x[i*8+2*j],x[i*8+2*j+1]); o[lane+32*i]=v; }
}
cublasHandle_t hd; cudaStream_t st; float one=1,zero=0,sc=0.125f;
void nt(const __half*a,const __half*b,__half*c,int n){ CK(cublasGemmStridedBatchedEx(hd,CUBLAS_OP_T,CUBLAS_OP_N,L,L,P,&sc,b,CUDA_R_16F,8192,64,a,CUDA_R_16F,8192,64,&zero,c,CUDA_R_16F,L,(long)L*L,n,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT)); }
void nn(const __half*s,const __half*v,__half*o,int n){ CK(cublasGemmStridedBatchedEx(hd,CUBLAS_OP_N,CUBLAS_OP_N,P,L,L,&one,v,CUDA_R_16F,8192,64,s,CUDA_R_16F,L,(long)L*L,&zero,o,CUDA_R_16F,8192,64,n,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT)); }
void tn(const __half*s,const __half*v,__half*o,int n){ CK(cublasGemmStridedBatchedEx(hd,CUBLAS_OP_N,CUBLAS_OP_T,P,L,L,&one,v,CUDA_R_16F,8192,64,s,CUDA_R_16F,L,(long)L*L,&zero,o,CUDA_R_16F,8192,64,n,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT)); }
int main(){ CK(cudaStreamCreate(&st)); CK(cublasCreate(&hd)); cublasSetStream(hd,st); void*ws; cudaMalloc(&ws,64<<20); cublasSetWorkspace(hd,ws,64<<20);
  size_t n=(size_t)L*HB*P, ns=(size_t)HB*L*L; __half*q[8],*s,*a,*da,*db; for(int i=0;i<8;++i) CK(cudaMalloc(&q[i],n*2)); CK(cudaMalloc(&s,ns*2));CK(cudaMalloc(&a,ns*2));CK(cudaMalloc(&da,ns*2));CK(cudaMalloc(&db,ns*2));
  std::vector<__half> r(n); for(int i=0;i<4;++i){ for(auto&x:r) x=__float2half((rand()%2001-1000)/1000.f); cudaMemcpy(q[i],r.data(),n*2,cudaMemcpyHostToDevice); }
  char*fl; cudaMalloc(&fl,256<<20);
  auto fwd=[&](int chunks){ int c=HB/chunks; for(int k=0;k<chunks;++k){ size_t o=(size_t)k*c*P, os=(size_t)k*c*L*L; nt(q[0]+o,q[1]+o,s+os,c); soft<false><<<c*L/8,256,0,st>>>(s+os,nullptr,a+os,c*L,k*c*L); nn(a+os,q[2]+o,q[4]+o,c); } };
  auto bwd=[&](int chunks,bool reuse){ int c=HB/chunks; for(int k=0;k<chunks;++k){ size_t o=(size_t)k*c*P, os=(size_t)k*c*L*L, ot=reuse?0:os; tn(a+os,q[3]+o,q[7]+o,c); nt(q[3]+o,q[2]+o,da+ot,c); soft<true><<<c*L/8,256,0,st>>>(s+os,da+ot,reuse?da+ot:db+ot,c*L,k*c*L); __half* d=reuse?da+ot:db+ot; nn(d,q[1]+o,q[5]+o,c); tn(d,q[0]+o,q[6]+o,c); } };
  auto run=[&](const char*name,auto f){ f(); CK(cudaStreamSynchronize(st)); cudaGraph_t g; cudaGraphExec_t e; CK(cudaStreamBeginCapture(st,cudaStreamCaptureModeThreadLocal)); f(); CK(cudaStreamEndCapture(st,&g)); CK(cudaGraphInstantiate(&e,g,0)); cudaEvent_t e0,e1; cudaEventCreate(&e0);cudaEventCreate(&e1); std::vector<float> t; for(int i=0;i<40;++i){ cudaMemsetAsync(fl,i,200<<20,st); cudaEventRecord(e0,st); CK(cudaGraphLaunch(e,st)); cudaEventRecord(e1,st); cudaEventSynchronize(e1); float ms; cudaEventElapsedTime(&ms,e0,e1); t.push_back(ms*1e3);} std::sort(t.begin(),t.end()); printf("%-40s %.1f us (min %.1f)\n",name,t[20],t[0]); fflush(stdout); };
  for(int rep=0;rep<2;++rep){
  for(int c: {1,2,4,8,16}) { char b[64]; sprintf(b,"forward, %d chunks",c); run(b,[&]{fwd(c);}); }
  for(int c: {1,2,4,8,16}) { char b[64]; sprintf(b,"backward, %d chunks",c); run(b,[&]{bwd(c,false);}); sprintf(b,"backward, %d chunks in place",c); run(b,[&]{bwd(c,true);}); } }
  CK(cudaDeviceSynchronize());
}
