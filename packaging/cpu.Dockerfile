# Millrace for the CPU, with the compiler and libraries that its kernels use. In the repository's root:
#   docker build -f packaging/cpu.Dockerfile -t millrace .
#   docker run --rm -v "$PWD:/work" millrace optimize models/bert_encoder.py --size tiny
# Measurements last as long as the container; a volume keeps them: -v millrace:/root/.local/share/millrace.
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      cmake dpkg-dev file g++ libcli11-dev ninja-build nlohmann-json3-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake --preset release -S /src -DMILLRACE_TESTS=OFF -DMILLRACE_UNITY=ON -DMILLRACE_WERROR=OFF \
    && cmake --build /src/build/release \
    && cpack --config /src/build/release/CPackConfig.cmake -B /packages

FROM debian:12-slim
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && apt-get install -y --no-install-recommends \
      /packages/millrace_*.deb g++ graphviz libblis4-openmp libdnnl2 libopenblas0-openmp \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["millrace"]
CMD ["doctor"]
