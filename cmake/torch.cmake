# The PyTorch backend, where torch is found. -I makes python ignore the PYTHONPATH by which pip
# hides the environment that it installs into, so that a plain `pip install .` finds its torch too.
find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
if(Python_FOUND)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -I -c "import torch; print(torch.utils.cmake_prefix_path, end='')"
    OUTPUT_VARIABLE HETCCL_TORCH_PREFIX ERROR_QUIET RESULT_VARIABLE torch_missing)
endif()
if(NOT Python_FOUND OR torch_missing)
  message(STATUS "hetccl: no torch for ${Python_EXECUTABLE}, so the PyTorch backend is not built")
elseif(EXISTS ${PROJECT_SOURCE_DIR}/python/csrc/CMakeLists.txt)
  list(APPEND CMAKE_PREFIX_PATH ${HETCCL_TORCH_PREFIX})
  add_subdirectory(python/csrc)
endif()
