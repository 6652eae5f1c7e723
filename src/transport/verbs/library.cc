#include "transport/verbs/library.h"

#include <vector>

#include "base/dynlib.h"

namespace hetccl::transport::verbs {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

void find_all(Symbols& symbols, Api& api) {
  symbols.find(api.list_devices, "ibv_get_device_list");
  symbols.find(api.free_devices, "ibv_free_device_list");
  symbols.find(api.open_device, "ibv_open_device");
  symbols.find(api.close_device, "ibv_close_device");
  symbols.find(api.query_port, "ibv_query_port");
  symbols.find(api.query_gid, "_ibv_query_gid_ex");
  symbols.find(api.query_pkey, "ibv_query_pkey");
  symbols.find(api.alloc_pd, "ibv_alloc_pd");
  symbols.find(api.dealloc_pd, "ibv_dealloc_pd");
  symbols.find(api.reg_mr, "ibv_reg_mr");
  symbols.optional(api.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  symbols.find(api.dereg_mr, "ibv_dereg_mr");
  symbols.find(api.create_comp_channel, "ibv_create_comp_channel");
  symbols.find(api.destroy_comp_channel, "ibv_destroy_comp_channel");
  symbols.find(api.create_cq, "ibv_create_cq");
  symbols.find(api.destroy_cq, "ibv_destroy_cq");
  symbols.find(api.get_cq_event, "ibv_get_cq_event");
  symbols.find(api.ack_cq_events, "ibv_ack_cq_events");
  symbols.find(api.create_qp, "ibv_create_qp");
  symbols.find(api.modify_qp, "ibv_modify_qp");
  symbols.find(api.destroy_qp, "ibv_destroy_qp");
  symbols.find(api.status_text, "ibv_wc_status_str");
  symbols.find(api.get_async_event, "ibv_get_async_event");
  symbols.find(api.ack_async_event, "ibv_ack_async_event");
  symbols.find(api.event_text, "ibv_event_type_str");
  symbols.find(api.fork_init, "ibv_fork_init");
  symbols.optional(api.is_fork_initialized, "ibv_is_fork_initialized");
}

}  // namespace

Result<std::shared_ptr<const Api>> load_library() {
  auto library = DynLib::open(std::vector<std::string>{kLibrary});
  if (!library.ok()) {
    return error(ErrorCode::Unsupported, "there is no RDMA library (%s); rdma-core has it",
                 library.status().message().c_str());
  }
  auto api = std::make_shared<Api>();
  api->path = library->path();
  Symbols symbols(*library);
  find_all(symbols, *api);
  if (!symbols.missing().empty()) {
    return error(ErrorCode::Unsupported, "%s lacks %s: hetccl needs rdma-core 33 or newer",
                 api->path.c_str(), symbols.missing().c_str());
  }
  library->stay_loaded();
  return std::shared_ptr<const Api>(std::move(api));
}

}  // namespace hetccl::transport::verbs
