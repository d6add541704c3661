#include "device/cuda/cudnn.h"

#include "base/text.h"
#include "device/cuda/shared_library.h"

namespace millrace {
namespace {

void find_all(SharedLibrary& library, Cudnn& found) {
  library.find("cudnnGetVersion", found.get_version);
  library.find("cudnnGetErrorString", found.get_error_string);
  library.find("cudnnGetLastErrorString", found.get_last_error_string);
  library.find("cudnnCreate", found.create);
  library.find("cudnnDestroy", found.destroy);
  library.find("cudnnSetStream", found.set_stream);
  library.find("cudnnBackendCreateDescriptor", found.create_descriptor);
  library.find("cudnnBackendDestroyDescriptor", found.destroy_descriptor);
  library.find("cudnnBackendFinalize", found.finalize);
  library.find("cudnnBackendSetAttribute", found.set_attribute);
  library.find("cudnnBackendGetAttribute", found.get_attribute);
  library.find("cudnnBackendExecute", found.execute);
}

Result<Cudnn> load_cudnn() {
  constexpr const char* kRemedy =
      "install cuDNN 9 (on Debian and Ubuntu NVIDIA's libcudnn9-cuda-13, by pip nvidia-cudnn-cu13, which PyTorch "
      "installs too), or set CUDA_HOME to where CUDA is";
  Result<SharedLibrary> library = SharedLibrary::open({"libcudnn.so.9"}, toolkit_folders());
  if (!library)
    return Error::make(ErrorKind::unavailable,
                       concat("cuDNN, whose fused attention is a candidate on GPUs, is missing: ",
                              library.error().diagnostics.front().message),
                       kRemedy);
  Cudnn found;
  find_all(*library, found);
  if (library->missing().empty()) return found;
  return Error::make(ErrorKind::unavailable, concat("cuDNN has no function ", library->missing()), kRemedy);
}

}  // namespace

Result<Done> Cudnn::check(int status, const std::string& what) const {
  if (status == cudnn::kSuccess) return Done{};
  std::array<char, 512> details{};
  get_last_error_string(details.data(), details.size());
  const std::string reason = details.front() == '\0' ? "" : concat(": ", details.data());
  return Error::make(ErrorKind::failed, concat("cuDNN cannot ", what, ": ", get_error_string(status), reason));
}

std::string Cudnn::version() const {
  const auto version = static_cast<long>(get_version());
  return concat(version_text(version, 10000, 100), ".", version % 100);
}

Result<const Cudnn*> cudnn_library() {
  static const Result<Cudnn> kLibrary = load_cudnn();
  if (!kLibrary) return kLibrary.error();
  return &*kLibrary;
}

GpuSoftware inspect_cudnn() {
  const Result<const Cudnn*> library = cudnn_library();
  if (!library) return missing_software(library.error());
  return {(*library)->version(), SharedLibrary::path_of((*library)->execute), ""};
}

Result<std::shared_ptr<cudnnContext>> open_cudnn(const Cudnn& library, const std::shared_ptr<CudaContext>& context) {
  const CurrentContext current(*context);
  cudnnContext* handle = nullptr;
  const Result<Done> opened = library.check(library.create(&handle), "start");
  if (!opened) return opened.error();
  return std::shared_ptr<cudnnContext>(handle, [&library, context](cudnnContext* made) {
    const CurrentContext its_own(*context);
    library.destroy(made);
  });
}

}  // namespace millrace
