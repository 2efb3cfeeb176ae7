// Runs a model with OpenVINO's C++ API: program MODEL, then for each input NAME TYPE FILE SIZE... and a comma. For each
// output it prints its name and sizes, and writes its float32 numbers to the file OUTPUT.PLACE.
#include <openvino/openvino.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

int main(int count, char** given) {
  ov::Core core;
  auto compiled = core.compile_model(given[1], "CPU", ov::hint::inference_precision(ov::element::f32));
  auto request = compiled.create_infer_request();
  for (int at = 2; at < count; ++at) {
    const std::string name = given[at++], type = given[at++], file = given[at++];
    ov::Shape shape;
    for (; std::string(given[at]) != ","; ++at) shape.push_back(std::strtoul(given[at], nullptr, 10));
    ov::Tensor tensor(type == "int64" ? ov::element::i64 : ov::element::f32, shape);
    std::ifstream(file, std::ios::binary).read(static_cast<char*>(tensor.data()), tensor.get_byte_size());
    request.set_tensor(name, tensor);
  }
  request.infer();
  for (std::size_t place = 0; place < compiled.outputs().size(); ++place) {
    const auto found = request.get_output_tensor(place);
    std::cout << compiled.output(place).get_any_name();
    for (const auto size : found.get_shape()) std::cout << ' ' << size;
    std::cout << '\n';
    std::ofstream("output." + std::to_string(place), std::ios::binary)
        .write(static_cast<const char*>(found.data()), found.get_byte_size());
  }
}
