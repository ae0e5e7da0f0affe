#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string_view>

#include "base/words.h"
#include "cli/argument_values.h"
#include "job/suggest.h"
#include "starling/error.h"
#include "starling/trainer.h"

namespace starling {
namespace {

constexpr const char* kFooter = R"(
First steps:
  starling data get fashion-mnist
  starling train examples/fashion_cnn.toml

Exit codes: 0 done; 1 something went wrong in the run; 2 something is wrong with what was given;
75 stopped by Ctrl-C or SIGTERM after saving: run again with --resume.
docs/job.md documents every field of a job file.)";

// What is summed when the user does not say: from what one cache line holds to what no cache holds.
constexpr const char* kBenchSizes =
    "8B,64B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,32MiB,128MiB";

// CLI11's help without what it adds to names: types, ranges and what excludes what.
class HelpFormatter : public CLI::Formatter {
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_size() == 0) return "";
    return " " + option->get_type_name();
  }
};

// The job would not say which flag was wrong.
const CLI::Validator kWholeNumber([](std::string& text) { return problem_of_whole_number(text); },
                                  "");

// What is parsed before it is checked.
struct Raw {
  std::vector<std::string> sets;
  // Numbers of the job, as they were typed.
  std::optional<std::string> lanes, seed, workers, servers, check_every;
  std::optional<std::string> strategy;
  bool respawn = false;
  std::optional<std::string> fabric, link_rate, link_delay;
  std::string samples;
  std::string time;  // of compare
  std::string sizes = kBenchSizes;
  int bench_workers = 2;
};

class Parser {
 public:
  Parser() : app_("Starling trains deep-learning models on CPUs.", "starling") {
    app_.set_version_flag("--version", fmt::format("starling {}", version()), "Show the version");
    app_.set_help_flag("-h,--help", "Show this help");
    app_.formatter(std::make_shared<HelpFormatter>());  // subcommands inherit it
    app_.footer(kFooter);
    app_.require_subcommand(1);
    app_.failure_message(CLI::FailureMessage::simple);
    add_train();
    add_launch();
    add_run_commands();
    add_replay();
    add_eval();
    add_predict();
    add_describe();
    add_tune();
    add_compare();
    add_bench();
    add_data();
  }

  Arguments parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return shown(app_.help());
    } catch (const CLI::CallForAllHelp&) {
      return shown(app_.help("", CLI::AppFormatMode::All));
    } catch (const CLI::CallForVersion&) {
      return shown(fmt::format("starling {}\n", version()));
    } catch (const CLI::ExtrasError&) {
      refuse_extra(std::span(argv, static_cast<size_t>(argc)));
    } catch (const CLI::RequiredError& error) {
      refuse_missing(argc, argv, error);
    } catch (const CLI::ParseError& error) {
      throw input_error(error.what(), see_help());
    }
    finish();
    arguments_.command_line = {"/proc/self/exe"};
    for (int i = 1; i < argc; ++i) arguments_.command_line.emplace_back(argv[i]);
    return arguments_;
  }

 private:
  static Arguments shown(std::string text) {
    Arguments arguments;
    // One empty line between groups is enough.
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    arguments.text = std::move(text);
    return arguments;
  }

  CLI::App* add(CLI::App& parent, const char* name, const char* description, Command command,
                const char* example) {
    CLI::App* sub = parent.add_subcommand(name, description);
    sub->footer(fmt::format("\nExample:\n  {}", example));
    sub->callback([this, command] { arguments_.command = command; });
    return sub;
  }

  void add_set_flag(CLI::App* sub) {
    sub->add_option("--set", raw_.sets, "Set a field of the job; may be given several times")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group("Job");
  }

  void add_job_flags(CLI::App* sub) {
    add_set_flag(sub);
    add_lanes_flag(sub);
  }

  void add_progress_flag(CLI::App* sub) {
    sub->add_flag("--no-progress", arguments_.no_progress, "Write no progress")->group("Run");
  }

  void add_number_flag(CLI::App* sub, const char* name, std::optional<std::string>& value,
                       const char* type, const char* description) {
    sub->add_option(name, value, description)->type_name(type)->check(kWholeNumber)->group("Job");
  }

  void add_lanes_flag(CLI::App* sub, const char* description =
                                         "Threads; 0: one per core. Never changes the "
                                         "numbers") {
    add_number_flag(sub, "--lanes", raw_.lanes, "N", description);
  }

  void add_train() {
    CLI::App* sub =
        add(app_, "train", "Train the model of a job file", Command::kTrain,
            "starling train examples/fashion_cnn.toml --set training.epochs=5 --lanes 2\n"
            "  starling train examples/fashion_cnn.toml --workers 2");
    sub->add_option("JOB", arguments_.target, "The job file")->required();
    add_set_flag(sub);
    add_lanes_flag(sub,
                   "Threads of each worker; 0: its share of the cores. Never changes the numbers");
    add_number_flag(sub, "--seed", raw_.seed, "N", "The seed of everything random");
    add_number_flag(sub, "--workers", raw_.workers, "N",
                    "Processes that train together. Never changes the numbers, unless they train "
                    "apart");
    add_number_flag(
        sub, "--servers", raw_.servers, "K",
        "Processes beside them that only serve, where workers use the parameter service");
    add_number_flag(sub, "--check-every", raw_.check_every, "K",
                    "Compare all workers' weights every K steps; 0: never");
    sub->add_flag("--respawn", raw_.respawn, "Replace workers that are lost by new ones")
        ->group("Job");
    sub->add_option("--strategy", raw_.strategy, "How they do it: strategy.name of the job")
        ->type_name("NAME")
        ->group("Job");
    add_fabric_flag(sub, "Job");
    sub->add_option("--run-dir", arguments_.run_dir, "Folder of the results; default: runs/<name>")
        ->type_name("DIR")
        ->group("Run");
    CLI::Option* resume = sub->add_flag("--resume", arguments_.resume,
                                        "Go on from the newest checkpoint in the folder")
                              ->group("Run");
    sub->add_flag("--overwrite", arguments_.overwrite,
                  "Replace the run that is in the folder; not with --resume")
        ->excludes(resume)
        ->group("Run");
    sub->add_flag("--record", arguments_.record,
                  "Write down what workers that train apart do, for `starling replay`")
        ->group("Run");
    add_progress_flag(sub);
    sub->add_option("--faults", arguments_.faults,
                    "A file of faults that are to happen, or a seed: see docs/faults.md")
        ->type_name("FILE")
        ->group("Run");
  }

  // For a run that is under way.
  void add_run_commands() {
    const auto add_one = [&](const char* name, const char* description, Command command,
                             const char* example) {
      CLI::App* sub = add(app_, name, description, command, example);
      sub->add_option("RUN_DIR", arguments_.target, "The folder of the run")->required();
      return sub;
    };
    add_one("status", "Show how a run that is under way is doing", Command::kStatus,
            "starling status runs/fashion_cnn")
        ->add_flag("--json", arguments_.as_json, "As JSON")
        ->group("Output");
    add_one("join", "Add a worker to a run that is under way", Command::kJoin,
            "starling join runs/fashion_cnn");
    add_one("leave", "Let a worker of a run that is under way end; the others go on",
            Command::kLeave, "starling leave runs/fashion_cnn --worker 2")
        ->add_option("--worker", arguments_.worker, "Which; `starling status` lists them")
        ->type_name("K")
        ->check(CLI::Range(0, 1'000'000).description(""))
        ->required();
    add_one("stop", "Save a run that is under way, and end it", Command::kStop,
            "starling stop runs/fashion_cnn");
  }

  void add_replay() {
    CLI::App* sub =
        add(app_, "replay",
            "Do again, in one process, what workers that trained apart did, and compare "
            "the bits",
            Command::kReplay,
            "starling train job.toml --workers 3 --strategy parameter_server "
            "--set strategy.consistency=async --record\n"
            "  starling replay runs/job --timing-seed 7");
    sub->add_option("RUN_DIR", arguments_.target, "The folder of the run")->required();
    sub->add_option("--timing-seed", arguments_.timing_seed,
                    "Of the moments at which gradients are computed. Never changes the numbers")
        ->type_name("N")
        ->group("Run");
    add_lanes_flag(sub);
    add_progress_flag(sub);
  }

  void add_fabric_flag(CLI::App* sub, const char* group = "Workers") {
    sub->add_option("--fabric", raw_.fabric,
                    "How they talk: shm or tcp; default: shm, or tcp with a link")
        ->type_name("NAME")
        ->check(CLI::IsMember({"shm", "tcp"}).description(""))
        ->group(group);
    add_link_flags(sub, group);
  }

  void add_link_flags(CLI::App* sub, const char* group) {
    sub->add_option("--link-rate", raw_.link_rate,
                    "Talk over tcp, each as through a network of this rate: 100mbit")
        ->type_name("RATE")
        ->group(group);
    sub->add_option("--link-delay", raw_.link_delay, "And of this delay, one way: 5ms")
        ->type_name("TIME")
        ->group(group);
  }

  void add_launch() {
    CLI::App* sub = add(app_, "launch", "Start a program of your own as several workers",
                        Command::kLaunch, "starling launch -n 4 -- ./my_program --its-own flags");
    sub->add_option("-n,--workers", arguments_.workers, "How many")
        ->type_name("N")
        ->check(CLI::Range(1, 1024).description(""))
        ->required()
        ->group("Workers");
    sub->add_option("--lanes", arguments_.lanes, "Cores for each; 0: their share of all")
        ->type_name("N")
        ->check(CLI::Range(0, 1024).description(""))
        ->group("Workers");
    add_fabric_flag(sub);
    sub->add_option("PROGRAM", arguments_.program, "The program and its arguments, after --")
        ->required();
  }

  void add_weights_flag(CLI::App* sub) {
    sub->add_option("--weights", arguments_.weights,
                    "A safetensors file or a checkpoint; default: the run's newest")
        ->type_name("FILE")
        ->group("Model");
  }

  void add_eval() {
    CLI::App* sub = add(app_, "eval", "Measure a trained model on the test data", Command::kEval,
                        "starling eval runs/fashion_cnn");
    sub->add_option("JOB_OR_RUN", arguments_.target, "The folder of a run, or a job file")
        ->required();
    add_weights_flag(sub);
    add_job_flags(sub);
  }

  void add_predict() {
    CLI::App* sub =
        add(app_, "predict", "Use a trained model on samples", Command::kPredict,
            "starling predict runs/fashion_cnn --samples 0:10 --top 3\n"
            "  starling predict runs/fashion_cnn --input images.npy --output classes.csv");
    sub->add_option("JOB_OR_RUN", arguments_.target, "The folder of a run, or a job file")
        ->required();
    add_weights_flag(sub);
    CLI::Option* input = sub->add_option("--input", arguments_.input,
                                         "Samples as a NumPy file, along its first axis")
                             ->type_name("FILE.npy")
                             ->group("Samples");
    sub->add_option("--samples", raw_.samples,
                    "Samples of the test data instead, from FIRST to before LAST")
        ->type_name("FIRST:LAST")
        ->excludes(input)
        ->group("Samples");
    sub->add_option("--output", arguments_.output,
                    "Where results go, .csv or .npy; default: the terminal")
        ->type_name("FILE")
        ->group("Results");
    sub->add_option("--top", arguments_.top, "Classes to show for each sample; default: 3")
        ->type_name("K")
        ->check(CLI::Range(1, 1000).description(""))
        ->group("Results");
    sub->add_flag("--raw", arguments_.raw, "The model's outputs as they are, not as probabilities")
        ->group("Results");
    add_job_flags(sub);
  }

  void add_describe() {
    CLI::App* sub =
        add(app_, "describe", "Show layers, shapes, parameters, memory and cost",
            Command::kDescribe, "starling describe examples/fashion_cnn.toml --kernels");
    sub->add_option("JOB", arguments_.target, "The job file")->required();
    sub->add_flag("--kernels", arguments_.kernels, "Also list the kernels of a step")
        ->group("Output");
    add_job_flags(sub);
  }

  void add_tune() {
    CLI::App* sub = add(app_, "tune", "Measure, and write shards and micro_batch into the job file",
                        Command::kTune, "starling tune my_job.toml");
    sub->add_option("JOB", arguments_.target, "The job file")->required();
    sub->add_flag("--dry-run", arguments_.dry_run, "Measure only; leave the file as it is")
        ->group("Output");
    add_job_flags(sub);
  }

  void add_compare() {
    CLI::App* sub = add(
        app_, "compare", "Run several strategies on a job, and say which is best for it",
        Command::kCompare,
        "starling compare job.toml --workers 4 --epochs 5\n"
        "  starling compare job.toml --strategies "
        "all_reduce,local_sgd:period=16/64:nesterov,parameter_server:async \\\n"
        "    --workers 2,4 --slow-worker none,4x --seeds 5 --goal 0.88\n"
        "\nCalled again after Ctrl-C, or with more seeds, strategies or conditions, it goes on.");
    CompareOptions& compare = arguments_.compare;
    sub->add_option("JOB", arguments_.target, "The job file")->required();
    add_job_flags(sub);
    const auto option = [&](const char* name, auto& value, const char* type, const char* group,
                            const char* description) {
      return sub->add_option(name, value, description)->type_name(type)->group(group);
    };
    option("--strategies", compare.strategies, "LIST", "Strategies",
           "all, or names with settings, name:key=value/value:word; default: all");
    option("--goal", compare.goal, "ACCURACY", "Strategies",
           "What is to be reached, 0 to 1; default: half a point below one process")
        ->check(CLI::Range(0.0, 1.0).description(""));
    option("--workers", compare.conditions.workers, "N,N,...", "Conditions",
           "How many workers; default: the job's, or 2");
    option("--slow-worker", compare.conditions.slow_worker, "4x,...", "Conditions",
           "The last worker takes so many times as long; none: as the others");
    option("--link-rate", compare.conditions.link_rate, "RATE,...", "Conditions",
           "What links between workers carry, such as 100mbit; none: no limit");
    option("--link-delay", compare.conditions.link_delay, "TIME,...", "Conditions",
           "How long messages take, such as 5ms; none: no delay");
    option("--seeds", compare.seeds, "N", "Budget",
           "Runs of each, from the job's seed on; default: 3")
        ->check(CLI::Range(1, 1000).description(""));
    CLI::Option* const epochs =
        option("--epochs", compare.epochs, "N", "Budget", "Of each run; default: the job's")
            ->check(CLI::Range(1, 1'000'000).description(""));
    CLI::Option* const samples = option("--samples", compare.samples, "N", "Budget",
                                        "Samples of each run instead, in whole epochs")
                                     ->check(CLI::Range(1.0, 1e15).description(""))
                                     ->excludes(epochs);
    option("--time", raw_.time, "60s", "Budget",
           "Training time of each run instead: s, min or h; with --epochs: and at most so many")
        ->excludes(samples);
    option("--out", arguments_.out, "DIR", "Run",
           "Folder of the results; default: runs/<name>-compare");
    sub->add_flag("--overwrite", arguments_.overwrite, "Replace the comparison that is there")
        ->group("Run");
    add_progress_flag(sub);
  }

  void add_bench() {
    CLI::App* bench = app_.add_subcommand("bench", "Measure what this machine gives");
    bench->require_subcommand(1);
    bench->footer("\nExample:\n  starling bench all-reduce --workers 2");
    CLI::App* sub = add(*bench, "all-reduce",
                        "Measure how fast workers sum what each of them has, against a bare sum",
                        Command::kBenchAllReduce,
                        "starling bench all-reduce --workers 2 --sizes 1KiB,1MiB,64MiB\n"
                        "  starling bench all-reduce --fabric tcp --json all_reduce.json");
    sub->add_option("-n,--workers", raw_.bench_workers, "How many; default: 2")
        ->type_name("N")
        ->check(CLI::Range(2, 1024).description(""))
        ->group("Workers");
    add_fabric_flag(sub);
    sub->add_option("--sizes", raw_.sizes, "What is summed; default: from 8B to 128MiB")
        ->type_name("SIZE,SIZE,...")
        ->group("Measurement");
    sub->add_option("--repeats", arguments_.repeats,
                    "Samples of each size, of which the median is shown; default: 11")
        ->type_name("N")
        ->check(CLI::Range(1, 100000).description(""))
        ->group("Measurement");
    sub->add_option("--json", arguments_.json, "Write the figures to this file too")
        ->type_name("FILE")
        ->group("Measurement");
  }

  void add_data() {
    CLI::App* data = app_.add_subcommand("data", "Fetch data sets, and look into them");
    data->require_subcommand(1);
    data->footer("\nExample:\n  starling data get mnist");
    CLI::App* get = add(*data, "get", "Fetch a data set and check every byte of it",
                        Command::kDataGet, "starling data get mnist");
    get->add_option("NAME", arguments_.target, "fashion-mnist or mnist")->required();
    CLI::App* info = add(*data, "info", "Show what a data set holds", Command::kDataInfo,
                         "starling data info fashion-mnist");
    info->add_option("NAME_OR_JOB", arguments_.target, "A data set's name, or a job file")
        ->required();
    add_set_flag(info);
  }

  // The innermost command that was named.
  const CLI::App& selected() const {
    const CLI::App* at = &app_;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    return *at;
  }

  std::string path_of(const CLI::App& app) const {
    if (&app == &app_) return "starling";
    return path_of(*app.get_parent()) + " " + app.get_name();
  }

  std::string see_help() const { return fmt::format("see `{} --help`", path_of(selected())); }

  std::vector<std::string> names_of(const CLI::App& app, bool flags) const {
    std::vector<std::string> names;
    if (flags) {
      for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    } else {
      for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    }
    return names;
  }

  [[noreturn]] void refuse_name(const std::string& word, const CLI::App& app) const {
    const bool flag = word.starts_with("-");
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> known = names_of(app, flag);
    const auto meant = nearest(name, known);
    const char* kind = flag ? "flag" : known.empty() ? "argument" : "command";
    throw input_error(fmt::format("{} has no {} {}", path_of(app), kind, name),
                      meant           ? fmt::format("did you mean {}?", *meant)
                      : known.empty() ? see_help()
                                      : fmt::format("it has: {}", fmt::join(known, ", ")));
  }

  // Words of ours that no one has asked for: those before --. What is behind it is a program's.
  std::vector<std::string> extra_words(std::span<const char* const> words) const {
    std::vector<std::string> extra = app_.remaining(true);
    const auto end = std::find(words.begin(), words.end(), std::string_view("--"));
    std::erase_if(
        extra, [&](const std::string& word) { return std::find(words.begin(), end, word) == end; });
    return extra;
  }

  [[noreturn]] void refuse_extra(std::span<const char* const> words) const {
    const std::vector<std::string> extra = extra_words(words);
    if (extra.empty()) throw input_error("an argument was not expected", see_help());
    const auto flag = std::find_if(extra.begin(), extra.end(),
                                   [](const auto& word) { return word.starts_with("-"); });
    const bool parted =
        std::find(words.begin(), words.end(), std::string_view("--")) != words.end();
    if (!parted && !arguments_.program.empty() && flag != extra.end())
      throw input_error(fmt::format("{} has no flag {}", path_of(selected()), *flag),
                        "flags of the program come behind --, and so does its name: "
                        "starling launch -n 4 -- ./my_program --its-own flags");
    refuse_name(flag == extra.end() ? extra.front() : *flag, selected());
  }

  [[noreturn]] void refuse_missing(int argc, const char* const* argv,
                                   const CLI::RequiredError& error) const {
    const CLI::App& app = selected();
    const std::vector<std::string> commands = names_of(app, false);
    if (commands.empty()) {
      // A mistyped flag is named rather than what is missing because of it.
      for (const std::string& word : extra_words(std::span(argv, static_cast<size_t>(argc)))) {
        if (word.starts_with("-")) refuse_name(word, app);
      }
      throw input_error(error.what(), see_help());
    }
    for (const std::string& word : app_.remaining(true)) refuse_name(word, app);
    // CLI11 forgets words that come before what it misses: look for them here.
    for (int i = &app == &app_ ? 1 : 2; i < argc; ++i) refuse_name(argv[i], app);
    throw input_error(fmt::format("{} needs a command", path_of(app)),
                      fmt::format("one of: {}; {}", fmt::join(commands, ", "), see_help()));
  }

  void finish() {
    for (const std::string& set : raw_.sets) arguments_.settings.push_back(parse_setting(set));
    const auto set = [&](const char* key, const std::optional<std::string>& value) {
      if (value) arguments_.settings.push_back({key, *value});
    };
    set("lanes", raw_.lanes);
    set("seed", raw_.seed);
    set("workers", raw_.workers);
    set("strategy.servers", raw_.servers);
    if (raw_.respawn) set("strategy.respawn", "true");
    set("strategy.check_every", raw_.check_every);
    set("strategy.name", raw_.strategy);
    finish_link();
    if (!raw_.samples.empty()) arguments_.samples = parse_range(raw_.samples);
    if (!raw_.time.empty()) arguments_.compare.seconds = parse_time(raw_.time);
    if (arguments_.command == Command::kBenchAllReduce) {
      arguments_.workers = raw_.bench_workers;
      for (const std::string& size : split_words(raw_.sizes, ','))
        arguments_.sizes.push_back(parse_size(size));
    }
  }

  // Who wants a link wants tcp, unless he says what he wants.
  void finish_link() {
    const bool paced = raw_.link_rate || raw_.link_delay;
    if (arguments_.command != Command::kTrain) {
      arguments_.fabric = raw_.fabric.value_or(paced ? "tcp" : "shm");
      arguments_.link_rate = raw_.link_rate.value_or("");
      arguments_.link_delay = raw_.link_delay.value_or("");
      if (paced && arguments_.fabric != "tcp")
        throw input_error("--fabric shm: workers that share memory have no link of a rate or delay",
                          "use --fabric tcp, or leave --link-rate and --link-delay away");
      return;
    }
    std::vector<Setting>& settings = arguments_.settings;
    if (raw_.fabric) settings.push_back({"strategy.fabric", *raw_.fabric});
    const bool has_fabric =
        std::any_of(settings.begin(), settings.end(),
                    [](const Setting& setting) { return setting.key == "strategy.fabric"; });
    if (raw_.link_rate) settings.push_back({"strategy.link_rate", *raw_.link_rate});
    if (raw_.link_delay) settings.push_back({"strategy.link_delay", *raw_.link_delay});
    if (paced && !has_fabric) settings.push_back({"strategy.fabric", "tcp"});
  }

  CLI::App app_;
  Arguments arguments_;
  Raw raw_;
};

}  // namespace

Arguments parse_arguments(int argc, const char* const* argv) { return Parser().parse(argc, argv); }

}  // namespace starling
