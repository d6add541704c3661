# Millrace for NVIDIA GPUs, with NVRTC, cuBLASLt and cuDNN. In the repository's root, and with NVIDIA's container toolkit
# on the machine that runs it:
#   docker build -f packaging/cuda.Dockerfile -t millrace-cuda .
#   docker run --rm --gpus all -v "$PWD:/work" millrace-cuda optimize models/bert_encoder.py --device cuda
# Measurements last as long as the container; a volume keeps them: -v millrace:/root/.local/share/millrace.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      cmake dpkg-dev file g++ libcli11-dev ninja-build nlohmann-json3-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake --preset release -S /src -DMILLRACE_TESTS=OFF -DMILLRACE_UNITY=ON -DMILLRACE_WERROR=OFF \
    && cmake --build /src/build/release \
    && test -f /src/build/release/libmillrace_cuda.so \
    && cpack --config /src/build/release/CPackConfig.cmake -B /packages

FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      /packages/millrace_*.deb g++ graphviz libblis4-openmp libdnnl3 libopenblas0-openmp \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["millrace"]
CMD ["doctor"]
