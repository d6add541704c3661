# Debian packages: `cpack --config build/release/CPackConfig.cmake -B FOLDER` in a build. `millrace` has the programs and
# libraries, `libmillrace-dev` what find_package(millrace) needs. Python's package is a wheel. docs/packages.md says more.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "The Millrace authors")
set(CPACK_PACKAGE_CONTACT "The Millrace authors <millrace@localhost>")  # Debian demands an address
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)

# dpkg-shlibdeps finds what the programs link to. Others are loaded on demand, or run.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME millrace)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS libsqlite3-0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "g++ (>= 4:12), libopenblas0-openmp, libblis4-openmp")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libdnnl3 | libdnnl2, graphviz, libcuda1")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "data movement of transformer training, made visible and then made small
Millrace takes a layer written in NumPy and finds the fused kernels, library
calls and data layouts that run its training step fastest on this machine's
CPU or NVIDIA GPU. Kernels for the CPU need a C++ compiler.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmillrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "millrace (= ${PROJECT_VERSION}), g++ (>= 4:12)")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "headers and static library of Millrace
For C++ programs that run plans: find_package(millrace) in CMake.")
include(CPack)
