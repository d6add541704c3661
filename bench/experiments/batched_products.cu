#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <vector>
#include <cmath>
#include <algorithm>
typedef unsigned u32; typedef unsigned long long u64;
#define CK(x) do{cudaError_t e=(x); if(e){printf("%s %d\n",cudaGetErrorString(e),__LINE__);exit(1);}}while(0)
__device__ __forceinline__ u32 smem(const void* p){ return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void cp16(u32 d, const void* s){ asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"::"r"(d),"l"(s)); }
__device__ __forceinline__ void commit(){ asm volatile("cp.async.commit_group;"); }
template<int N> __device__ __forceinline__ void wait(){ asm volatile("cp.async.wait_group %0;"::"n"(N)); }
__device__ __forceinline__ void ld4(u32 (&r)[4], u32 a){ asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];":"=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]):"r"(a)); }
__device__ __forceinline__ void ld4t(u32 (&r)[4], u32 a){ asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];":"=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]):"r"(a)); }
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0,u32 b1){
 asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};":"+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b0),"r"(b1)); }
struct Strides { long row, b, h; };  // of the non-contiguous index, and of the two batch indices
template<int M,int N,int K,int TM,int TN,int TK,int WM,int WN,int kStages,bool aK,bool bK,int kMin>
__global__ __launch_bounds__(WM*WN*32,kMin) void tile(const __half* __restrict__ A,const __half* __restrict__ B,__half* __restrict__ C,Strides sa,Strides sb,Strides sc,int H,float scale){
  extern __shared__ __align__(16) __half sh[];
  constexpr int kThreads=WM*WN*32, PA=(aK?TK:TM)+8, RA=aK?TM:TK, PB=(bK?TK:TN)+8, RB=bK?TN:TK, kA=RA*PA, kB=RB*PB;
  constexpr int FM=TM/WM/16, FN=TN/WN/8;
  const int t=threadIdx.x, warp=t/32, lane=t%32, wm=warp/WN, wn=warp%WN;
  int blk=blockIdx.x; const int nt=blk%(N/TN); blk/=N/TN; const int mt=blk%(M/TM); blk/=M/TM; const int h=blk%H, b=blk/H;
  const __half* a=A+b*sa.b+h*sa.h+(aK?(long)mt*TM*sa.row:(long)mt*TM); const __half* bb=B+b*sb.b+h*sb.h+(bK?(long)nt*TN*sb.row:(long)nt*TN);
  auto load=[&](int k){ if(k<K/TK){ __half* as=sh+k%kStages*(kA+kB); __half* bs=as+kA;
    constexpr int CA=(aK?TK:TM)/8, CB=(bK?TK:TN)/8;
    #pragma unroll
    for(int i=t;i<RA*CA;i+=kThreads){ int r=i/CA,c=i%CA; cp16(smem(as+r*PA+c*8), a+(aK? r*sa.row+k*TK+c*8 : (long)(k*TK+r)*sa.row+c*8)); }
    #pragma unroll
    for(int i=t;i<RB*CB;i+=kThreads){ int r=i/CB,c=i%CB; cp16(smem(bs+r*PB+c*8), bb+(bK? r*sb.row+k*TK+c*8 : (long)(k*TK+r)*sb.row+c*8)); }
  } commit(); };
  float acc[FM][FN][4];
  #pragma unroll
  for(int i=0;i<FM;++i) for(int j=0;j<FN;++j) for(int e=0;e<4;++e) acc[i][j][e]=0;
  #pragma unroll
  for(int i=0;i<kStages-1;++i) load(i);
  #pragma unroll 1
  for(int k=0;k<K/TK;++k){
    wait<kStages-2>(); __syncthreads(); load(k+kStages-1);
    const __half* as=sh+k%kStages*(kA+kB); const __half* bs=as+kA;
    #pragma unroll
    for(int s=0;s<TK/16;++s){
      u32 af[FM][4];
      #pragma unroll
      for(int i=0;i<FM;++i){ const int m0=(wm*FM+i)*16; 
        if(aK) ld4(af[i], smem(as+(m0+lane%16)*PA+s*16+lane/16*8)); else ld4t(af[i], smem(as+(s*16+lane%8+lane/16*8)*PA+m0+lane/8%2*8)); }
      #pragma unroll
      for(int j=0;j<FN;j+=2){ const int n0=(wn*FN+j)*8; u32 bf[4];
        if(bK) ld4(bf, smem(bs+(n0+lane%8+lane/16*8)*PB+s*16+lane/8%2*8)); else ld4t(bf, smem(bs+(s*16+lane%16)*PB+n0+lane/16*8));
        #pragma unroll
        for(int i=0;i<FM;++i){ mma(acc[i][j],af[i],bf[0],bf[1]); mma(acc[i][j+1],af[i],bf[2],bf[3]); } }
    }
  }
  __half* c=C+b*sc.b+h*sc.h; const int g=lane/4,q=lane%4;
  #pragma unroll
  for(int i=0;i<FM;++i)
    #pragma unroll
    for(int r=0;r<2;++r){ const long row=mt*TM+(wm*FM+i)*16+g+r*8;
      #pragma unroll
      for(int j=0;j<FN;j+=4){
        u32 x[4];
        #pragma unroll
        for(int e=0;e<4;++e){ __half2 y=__floats2half2_rn(acc[i][j+e][2*r]*scale,acc[i][j+e][2*r+1]*scale); x[e]=*(u32*)&y; }
        // transpose 4x4 in the quad: lane q gets tile q
        { bool up=q&2; u32 s0=up?x[0]:x[2], s1=up?x[1]:x[3]; s0=__shfl_xor_sync(~0u,s0,2); s1=__shfl_xor_sync(~0u,s1,2); if(up){x[0]=s0;x[1]=s1;}else{x[2]=s0;x[3]=s1;} }
        { bool up=q&1; u32 s0=up?x[0]:x[1], s1=up?x[2]:x[3]; s0=__shfl_xor_sync(~0u,s0,1); s1=__shfl_xor_sync(~0u,s1,1); if(up){x[0]=s0;x[2]=s1;}else{x[1]=s0;x[3]=s1;} }
        *(uint4*)(c+row*sc.row+nt*TN+(wn*FN+j+q)*8)=*(uint4*)x;
      } }
}

__global__ void rdflush(const uint4* p, int n, uint4* o){ uint4 x{0,0,0,0}; for(int i=blockIdx.x*blockDim.x+threadIdx.x;i<n;i+=gridDim.x*blockDim.x){ uint4 y=p[i]; x.x^=y.x;x.y^=y.y;} if(x.x==123456789) *o=x; }
char* fl; 
template<int M,int N,int K,int TM,int TN,int TK,int WM,int WN,int kStages,bool aK,bool bK,int kMin>
void go(const char*name,__half*A,__half*B,__half*C,Strides sa,Strides sb,Strides sc,int H,int batch,std::vector<__half>&ha,std::vector<__half>&hb,size_t nc){
  auto f=tile<M,N,K,TM,TN,TK,WM,WN,kStages,aK,bK,kMin>; constexpr int PA=(aK?TK:TM)+8, RA=aK?TM:TK, PB=(bK?TK:TN)+8, RB=bK?TN:TK; int bytes=kStages*(RA*PA+RB*PB)*2;
  CK(cudaFuncSetAttribute(f,cudaFuncAttributeMaxDynamicSharedMemorySize,bytes)); cudaEvent_t e0,e1; cudaEventCreate(&e0); cudaEventCreate(&e1); std::vector<float> ts;
  for(int i=0;i<30;++i){ rdflush<<<1056,512>>>((uint4*)fl,(256<<20)/16,(uint4*)fl); cudaEventRecord(e0); f<<<batch*H*(M/TM)*(N/TN),WM*WN*32,bytes>>>(A,B,C,sa,sb,sc,H,0.125f); cudaEventRecord(e1); cudaEventSynchronize(e1); float ms; cudaEventElapsedTime(&ms,e0,e1); ts.push_back(ms*1e3);} CK(cudaGetLastError());
  std::sort(ts.begin(),ts.end()); cudaFuncAttributes at; cudaFuncGetAttributes(&at,f);
  std::vector<__half> hc(nc); cudaMemcpy(hc.data(),C,nc*2,cudaMemcpyDeviceToHost); double worst=0;
  for(int r=0;r<300;++r){ int b=rand()%batch,h=rand()%H,m=rand()%M,n=rand()%N; double x=0; for(int k=0;k<K;++k) x+=(double)__half2float(ha[b*sa.b+h*sa.h+(aK?m*sa.row+k:k*sa.row+m)])*__half2float(hb[b*sb.b+h*sb.h+(bK?n*sb.row+k:k*sb.row+n)]); x*=0.125; double y=__half2float(hc[b*sc.b+h*sc.h+m*sc.row+n]); worst=std::max(worst,fabs(x-y)/(1e-1+fabs(x))); }
  printf("%-8s tile %dx%dx%d warps %dx%d stages %d min %d: %.1f us (min %.1f) regs %d local %zu smem %d worst %.1e\n",name,TM,TN,TK,WM,WN,kStages,kMin,ts[15],ts[0],at.numRegs,at.localSizeBytes,bytes,worst); fflush(stdout);
}
int main(){
  constexpr int L=512,P=64; const int H=16,Bt=8; size_t n=(size_t)Bt*L*H*P, ns=(size_t)Bt*H*L*L; CK(cudaMalloc(&fl,256<<20));
  std::vector<__half> hq(n),hk(n),hs(ns); for(auto&x:hq) x=__float2half((rand()%2001-1000)/1000.f); for(auto&x:hk) x=__float2half((rand()%2001-1000)/1000.f); for(auto&x:hs) x=__float2half((rand()%2001-1000)/1000.f);
  __half*q,*k,*o,*s,*s2; CK(cudaMalloc(&q,n*2));CK(cudaMalloc(&k,n*2));CK(cudaMalloc(&o,n*2));CK(cudaMalloc(&s,ns*2));CK(cudaMalloc(&s2,ns*2));
  cudaMemcpy(q,hq.data(),n*2,cudaMemcpyHostToDevice);cudaMemcpy(k,hk.data(),n*2,cudaMemcpyHostToDevice);cudaMemcpy(s,hs.data(),ns*2,cudaMemcpyHostToDevice);
  Strides x{(long)H*P,(long)L*H*P,P}, y{L,(long)H*L*L,(long)L*L};
  cublasHandle_t hd; cublasCreate(&hd); cudaEvent_t e0,e1; cudaEventCreate(&e0); cudaEventCreate(&e1); float one=1,zero=0;
  for(int which=0;which<3;++which){ std::vector<float> ts; for(int i=0;i<30;++i){ rdflush<<<1056,512>>>((uint4*)fl,(256<<20)/16,(uint4*)fl); cudaEventRecord(e0);
    if(which==0) cublasGemmStridedBatchedEx(hd,CUBLAS_OP_T,CUBLAS_OP_N,L,L,P,&one,q,CUDA_R_16F,8192,64,k,CUDA_R_16F,8192,64,&zero,s2,CUDA_R_16F,L,(long)L*L,128,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT);
    if(which==1) cublasGemmStridedBatchedEx(hd,CUBLAS_OP_N,CUBLAS_OP_N,P,L,L,&one,q,CUDA_R_16F,8192,64,s,CUDA_R_16F,L,(long)L*L,&zero,o,CUDA_R_16F,8192,64,128,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT);
    if(which==2) cublasGemmStridedBatchedEx(hd,CUBLAS_OP_N,CUBLAS_OP_T,P,L,L,&one,q,CUDA_R_16F,8192,64,s,CUDA_R_16F,L,(long)L*L,&zero,o,CUDA_R_16F,8192,64,128,CUBLAS_COMPUTE_32F,CUBLAS_GEMM_DEFAULT);
    cudaEventRecord(e1); cudaEventSynchronize(e1); float ms; cudaEventElapsedTime(&ms,e0,e1); ts.push_back(ms*1e3);} std::sort(ts.begin(),ts.end()); printf("cublas %d: %.1f (min %.1f)\n",which,ts[15],ts[0]); }
#define S_(...) go<512,512,64,__VA_ARGS__>("beta",q,k,s2,x,x,y,H,Bt,hq,hk,ns)
#define G_(...) go<512,64,512,__VA_ARGS__>("gamma",s,q,o,y,x,x,H,Bt,hs,hq,n)
  S_(128,128,64,2,4,2,true,true,1); S_(128,128,64,2,4,2,true,true,2); S_(128,128,64,4,2,2,true,true,2); S_(64,128,64,2,2,2,true,true,3); S_(128,256,64,2,4,2,true,true,1); S_(64,256,64,1,4,2,true,true,2); S_(64,64,64,2,2,2,true,true,4); S_(128,64,64,4,1,2,true,true,4); S_(64,512,64,1,8,2,true,true,1);
  G_(128,64,64,4,1,3,true,false,2); G_(128,64,64,4,2,3,true,false,2); G_(128,64,64,4,2,4,true,false,2); G_(64,64,64,2,2,4,true,false,3); G_(64,64,64,4,1,4,true,false,3); G_(64,64,64,2,2,6,true,false,2); G_(64,64,128,2,2,3,true,false,2); G_(128,64,32,4,2,4,true,false,3); G_(32,64,128,2,2,3,true,false,3);
  G_(128,64,64,4,1,3,false,false,2); G_(128,64,64,4,2,4,false,false,2); G_(64,64,64,2,2,4,false,false,3); G_(64,64,64,4,1,4,false,false,3); G_(128,64,32,4,2,4,false,false,3); G_(256,64,32,8,1,4,false,false,2); 
}
