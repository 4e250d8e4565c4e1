#include "sim/module_image.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

namespace gpuflight::sim {
namespace {

using nlohmann::json;

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json to_json(const KernelImage& k) {
  return {{"name", base64_encode(k.name)},
          {"registers", k.registers},
          {"static_shared_bytes", k.static_shared_bytes},
          {"local_bytes", k.local_bytes},
          {"const_bytes", k.const_bytes},
          {"max_threads", k.max_threads},
          {"barriers", k.barriers},
          {"binary_version", k.binary_version},
          {"ptx_version", k.ptx_version},
          {"required_cluster", {k.required_cluster[0], k.required_cluster[1], k.required_cluster[2]}},
          {"duration_ns", k.duration_ns},
          {"block_ns", k.block_ns},
          {"fault", k.fault}};
}

KernelImage from_json(const json& j) {
  KernelImage k;
  k.name = base64_decode(j.at("name").get<std::string>()).value();
  k.registers = j.at("registers");
  k.static_shared_bytes = j.at("static_shared_bytes");
  k.local_bytes = j.at("local_bytes");
  k.const_bytes = j.at("const_bytes");
  k.max_threads = j.at("max_threads");
  k.barriers = j.at("barriers");
  k.binary_version = j.at("binary_version");
  k.ptx_version = j.at("ptx_version");
  for (int i = 0; i < 3; ++i) k.required_cluster[i] = j.at("required_cluster").at(i);
  k.duration_ns = j.at("duration_ns");
  k.block_ns = j.at("block_ns");
  k.fault = j.at("fault");
  return k;
}

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t b = 0; b < 3; ++b) group = (group << 8) | (b < n ? static_cast<unsigned char>(bytes[i + b]) : 0);
    for (std::size_t c = 0; c < 4; ++c) out += c <= n ? kAlphabet[(group >> (18 - 6 * c)) & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  std::array<int, 256> value;
  value.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    value[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int>(i);
  }
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int v = value[static_cast<unsigned char>(c)];
    if (v < 0) return std::nullopt;
    group = (group << 6) | static_cast<std::uint32_t>(v);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>((group >> bits) & 0xff);
    }
  }
  return out;
}

std::string write_image(const ModuleImage& image) {
  json kernels = json::array();
  for (const KernelImage& k : image.kernels) kernels.push_back(to_json(k));
  std::string out(kImageMagic);
  out += json{{"kernels", std::move(kernels)}}.dump();
  out += '\0';
  return out;
}

std::optional<ModuleImage> read_image(const void* data) {
  // strncmp stops at the first difference, so a short foreign blob is not read past its end.
  const char* text = static_cast<const char*>(data);
  if (text == nullptr || std::strncmp(text, kImageMagic.data(), kImageMagic.size()) != 0) return std::nullopt;
  try {
    const json j = json::parse(text + kImageMagic.size());
    ModuleImage image;
    for (const json& k : j.at("kernels")) image.kernels.push_back(from_json(k));
    return image;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace gpuflight::sim
