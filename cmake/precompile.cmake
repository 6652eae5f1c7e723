# With HETCCL_PRECOMPILE, which `make` sets, building takes little more than half the time. `pip install` and the
# build that `make lint` reads go without, so each file must include what it uses.
set(hetccl_headers <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <functional> <map>
                   <memory> <mutex> <optional> <span> <string> <thread> <utility> <vector>)

# hetccl_precompile(name options... HEADERS headers...): a target to REUSE_FROM for others with these options.
function(hetccl_precompile name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE hetccl_flags)
  target_compile_options(${name} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()
