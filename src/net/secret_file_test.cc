#include "net/secret_file.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hetccl::net {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/hetccl-secret-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& content, mode_t mode = 0600) {
    const std::string name = path + "/" + std::to_string(count++);
    std::ofstream(name, std::ios::binary) << content;
    ::chmod(name.c_str(), mode);
    return name;
  }
  std::string path;
  int count = 0;
};

std::string refusal(const std::string& path) {
  const auto read = read_secret_file(path);
  REQUIRE_FALSE(read.ok());
  CHECK(read.status().code() == ErrorCode::InvalidArgument);
  CHECK(read.status().message().find("HETCCL_SECRET_FILE=" + path) != std::string::npos);
  return read.status().message();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("equal bytes are equal secrets, newlines at the end aside") {
  Folder folder;
  const std::string content = "correct horse battery staple";
  const auto one = read_secret_file(folder.file(content));
  REQUIRE(one.ok());
  CHECK(one.value().size() == kSecretBytes);
  CHECK(read_secret_file(folder.file(content + "\n")).value() == one.value());
  CHECK(read_secret_file(folder.file(content + "\r\n", 0400)).value() == one.value());
  CHECK(read_secret_file(folder.file(content + " ")).value() != one.value());
  CHECK(read_secret_file(folder.file(std::string(16, '\0'))).ok());
}

TEST_CASE("what will not do is refused with the remedy") {
  Folder folder;
  const std::string content(40, 's');
  CHECK(has(refusal(folder.path + "/none"), "No such file"));
  CHECK(has(refusal(folder.path), "no regular file"));
  for (const mode_t mode : {0640U, 0604U, 0620U, 0644U, 0777U})
    CHECK(has(refusal(folder.file(content, mode)), "chmod 600"));
  CHECK(has(refusal(folder.file("")), "must hold 16 to 65536 bytes"));
  CHECK(has(refusal(folder.file("fifteen bytes..\n")), "must hold 16 to 65536 bytes"));
  CHECK(has(refusal(folder.file(std::string(kMaxSecretFileBytes + 1, 'x'))), "longer than"));
  const std::string fifo = folder.path + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(has(refusal(fifo), "no regular file"));
}

TEST_CASE("a job's key depends on the id and on the file") {
  const Secret id = random_secret(), other_id = random_secret();
  const Secret file = random_secret(), other_file = random_secret();
  CHECK(job_key(id, {}).secret == id);
  CHECK(job_key(id, {}).file_tag == 0);
  const Key key = job_key(id, file);
  CHECK(key.secret.size() == kSecretBytes);
  CHECK(key.secret != id);
  CHECK(key.file_tag != 0);
  CHECK(job_key(id, file).secret == key.secret);
  CHECK(job_key(id, file).file_tag == key.file_tag);
  for (const Key& different : {job_key(other_id, file), job_key(id, other_file)}) {
    CHECK(different.secret != key.secret);
    CHECK(different.file_tag != key.file_tag);
  }
}

}  // namespace
}  // namespace hetccl::net
