// The programs, by file. programs.cpp lists them.
#pragma once

#include "tests/programs/programs.h"

namespace fermata::programs {

// training.cpp
void digits_step(Results& results, const std::string& folder);
void compiled_training(Results& results, const std::string& folder);
void data_loading(Results& results, const std::string& folder);
void training_files(Results& results, const std::string& folder);

// transforms.cpp
void compiled_function(Results& results, const std::string& folder);
void control_flow(Results& results, const std::string& folder);
void control_flow_in_compiled_function(Results& results, const std::string& folder);
void nested_control_flow(Results& results, const std::string& folder);
void while_loops(Results& results, const std::string& folder);
void vmap_of_gradients(Results& results, const std::string& folder);
void higher_derivatives(Results& results, const std::string& folder);

// arrays.cpp
void pointwise_and_reductions(Results& results, const std::string& folder);
void products(Results& results, const std::string& folder);
void convolutions(Results& results, const std::string& folder);
void linear_algebra(Results& results, const std::string& folder);
void selections(Results& results, const std::string& folder);
void writes_in_place(Results& results, const std::string& folder);
void layouts(Results& results, const std::string& folder);
void errors(Results& results, const std::string& folder);
void views_and_writes(Results& results, const std::string& folder);
void few_calls(Results& results, const std::string& folder);

// outside.cpp
void array_files(Results& results, const std::string& folder);
void model_files(Results& results, const std::string& folder);
void trace_files(Results& results, const std::string& folder);
void exported_programs(Results& results, const std::string& folder);
void world_of_one(Results& results, const std::string& folder);
void disk_cache(Results& results, const std::string& folder);
void threads(Results& results, const std::string& folder);
void exchange(Results& results, const std::string& folder);
void texts(Results& results, const std::string& folder);
void device_work(Results& results, const std::string& folder);

}  // namespace fermata::programs
