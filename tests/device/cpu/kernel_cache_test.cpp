#include "device/cpu/kernel_cache.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "device/cpu/kernels.h"
#include "device/kernel_index.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

class KernelCacheTest : public KernelTest {
 protected:
  // A cache that finds the quick compiler's kernels and cannot compile any itself.
  KernelCache finding_cache() const {
    Compiler compiler = quick_compiler();
    compiler.path = "/no/compiler";
    return cache_with(compiler);
  }
  std::string index_of(const KernelCache& cache, const KernelSource& source) const {
    return path("cache/" + cache.name_of(source) + ".index");
  }
  size_t temporaries() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(path("cache")))
      if (entry.path().filename().string().find("tmp") != std::string::npos) ++count;
    return count;
  }
};

// The exit code of `body`, run in a separate process.
template <class Body>
pid_t in_another_process(Body body) {
  const pid_t id = fork();
  if (id == 0) _exit(body());
  return id;
}
int exit_code(pid_t id) {
  int status = 0;
  EXPECT_EQ(waitpid(id, &status, 0), id);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(KernelCacheTest, CompilesOnceAndFindsAgain) {
  const std::vector<KernelSource> sources = adding_up_to(5);
  std::vector<size_t> steps;
  const auto compiled =
      cache_with(quick_compiler(), {.seconds = 120, .batch = 3}).get(sources, 1, [&](size_t done, size_t total) {
        steps.push_back(done);
        EXPECT_EQ(total, 5U);
      });
  EXPECT_EQ(steps, (std::vector<size_t>{3, 5}));
  const auto found = finding_cache().get(sources, 2);
  ASSERT_EQ(found.size(), 5U);
  for (int k = 0; k < 5; ++k) {
    EXPECT_EQ(call(compiled[static_cast<size_t>(k)], 10), 10 + k);
    EXPECT_EQ(call(found[static_cast<size_t>(k)], 20), 20 + k);
    EXPECT_EQ(found[static_cast<size_t>(k)]->name,
              cache_with(quick_compiler()).name_of(sources[static_cast<size_t>(k)]));
  }
  EXPECT_EQ(compiled[0]->path, compiled[2]->path) << "a batch shares an object";
  EXPECT_NE(compiled[0]->path, compiled[3]->path);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(KernelCacheTest, TheNameDependsOnEverythingThatAffectsTheCode) {
  const Compiler compiler = {"/c", "1", {"-a", "-b"}};
  std::set<std::string> names;
  const auto add = [&](const Compiler& c, const std::string& start, const std::string& cpu, const std::string& text) {
    names.insert(KernelCache("/d", c, start, cpu).name_of({text}));
  };
  add(compiler, "prelude", "cpu", "text");
  add(compiler, "prelud", "cpu", "etext");
  add(compiler, "prelude", "cpu2", "text");
  add(compiler, "prelude", "cpu", "text ");
  add({"/c", "2", {"-a", "-b"}}, "prelude", "cpu", "text");
  add({"/c", "1", {"-a", "-c"}}, "prelude", "cpu", "text");
  add({"/c", "1", {"-a -b"}}, "prelude", "cpu", "text");
  EXPECT_EQ(names.size(), 7U);
  add({"/elsewhere", "1", {"-a", "-b"}}, "prelude", "cpu", "text");
  EXPECT_EQ(names.size(), 7U);
  for (const std::string& name : names) {
    EXPECT_EQ(name.size(), 34U);
    EXPECT_TRUE(name.starts_with("k_"));
  }
}

TEST_F(KernelCacheTest, AKernelThatDoesNotCompileAffectsNoOther) {
  std::vector<KernelSource> sources = adding_up_to(6);
  sources[3] = {"extern \"C\" int MILLRACE_KERNEL(int x) {\n  return undeclared + x;\n}"};
  const KernelCache cache = cache_with(quick_compiler());
  std::vector<size_t> steps;
  const auto kernels = cache.get(sources, 2, [&](size_t done, size_t) { steps.push_back(done); });
  for (const size_t k : {0U, 1U, 2U, 4U, 5U}) EXPECT_EQ(call(kernels[k], 1), 1 + static_cast<int>(k));
  EXPECT_EQ(steps.back(), 6U);
  ASSERT_FALSE(kernels[3]);
  const std::string name = cache.name_of(sources[3]);
  EXPECT_TRUE(says(kernels[3].error(), "kernel " + name + " does not compile: " + name + ":2:"))
      << to_string(kernels[3].error());
  EXPECT_TRUE(says(kernels[3].error(), "undeclared")) << to_string(kernels[3].error());
  const std::string kept = path("cache/failed/" + name + ".cpp");
  EXPECT_TRUE(says(kernels[3].error(), kept)) << to_string(kernels[3].error());
  EXPECT_NE(read_file(kept, 1 << 20)->find("return undeclared"), std::string::npos);
  const auto found = finding_cache().get(sources, 1);
  EXPECT_TRUE(found[2] && found[4]);
  EXPECT_FALSE(found[3]);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(KernelCacheTest, TheSameKernelTwiceIsCompiledOnce) {
  const auto kernels = cache_with(quick_compiler()).get({adding(1), adding(2), adding(1)}, 1);
  EXPECT_EQ(call(kernels[0], 1), 2);
  EXPECT_EQ(call(kernels[2], 1), 2);
  EXPECT_EQ(kernels[0]->name, kernels[2]->name);
}

TEST_F(KernelCacheTest, AnEmptyRequestCompilesNothing) {
  EXPECT_TRUE(cache_with(counting_compiler()).get({}, 4).empty());
  EXPECT_EQ(calls(), 0U);
}

TEST_F(KernelCacheTest, AnyChangeOfAnIndexEntryIsDetected) {
  const std::string name = "k_" + std::string(32, 'a');
  const std::string hash = sha256("x");
  const std::string text = to_text({name, object_name(hash), hash});
  const std::optional<IndexEntry> entry = parse_index_entry(text, name);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->object, "o_" + hash.substr(0, 32) + ".so");
  EXPECT_EQ(entry->sha256, hash);
  for (size_t at = 0; at < text.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ 1U << bit);
      EXPECT_FALSE(parse_index_entry(damaged, name)) << at << " " << bit;
    }
    EXPECT_FALSE(parse_index_entry(text.substr(0, at), name)) << at;
  }
  EXPECT_FALSE(parse_index_entry(text + "\n", name));
  EXPECT_FALSE(parse_index_entry(text, "k_" + std::string(32, 'b')));
  // Its hashes are right, but its path leaves the directory.
  EXPECT_FALSE(parse_index_entry(to_text({name, "../evil.so", hash}), name));
}

TEST_F(KernelCacheTest, AFlippedBitInAnyByteOfAnEntryMakesItCompileAgain) {
  // One kernel for each byte of an entry; byte n of kernel n's entry is damaged.
  const KernelCache cache = cache_with(counting_compiler(), {.seconds = 120, .batch = 1000});
  ASSERT_TRUE(cache.get({adding(0)}, 1).front());
  const size_t length = read_file(index_of(cache, adding(0)), 4096)->size();
  const std::vector<KernelSource> sources = adding_up_to(static_cast<int>(length));
  for (const auto& kernel : cache.get(sources, 1)) ASSERT_TRUE(kernel);
  std::vector<std::string> good;
  for (size_t at = 0; at < length; ++at) {
    const std::string index = index_of(cache, sources[at]);
    good.push_back(*read_file(index, 4096));
    ASSERT_EQ(good.back().size(), length);
    std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(static_cast<unsigned char>(good.back()[at]) ^ 1U << at % 8));
  }
  size_t compiled = 0;
  for (const auto& kernel : cache.get(sources, 1, [&](size_t, size_t total) { compiled = total; })) EXPECT_TRUE(kernel);
  EXPECT_EQ(compiled, length);
  for (size_t at = 0; at < length; ++at) EXPECT_EQ(*read_file(index_of(cache, sources[at]), 4096), good[at]) << at;
}

TEST_F(KernelCacheTest, ADamagedObjectIsCompiledAgain) {
  const KernelCache cache = cache_with(quick_compiler());
  const auto first = cache.get({adding(1)}, 1);
  ASSERT_TRUE(first.front()) << to_string(first.front().error());
  const std::string object = first.front()->path;
  const std::string good = *read_file(object, 1 << 24);
  std::vector<std::string> damages = {"", good.substr(0, good.size() - 1), good + "x"};
  for (const size_t at : {size_t{0}, good.size() / 2, good.size() - 1}) {
    damages.push_back(good);
    damages.back()[at] = static_cast<char>(~damages.back()[at]);
  }
  for (const std::string& damaged : damages) {
    ASSERT_TRUE(write_file(object, damaged));
    EXPECT_FALSE(finding_cache().get({adding(1)}, 1).front());
  }
  EXPECT_EQ(call(cache.get({adding(1)}, 1).front(), 1), 2);
  fs::remove(object);
  EXPECT_EQ(call(cache.get({adding(1)}, 1).front(), 1), 2);
  EXPECT_TRUE(finding_cache().get({adding(1)}, 1).front());
}

TEST_F(KernelCacheTest, FilesThatOthersCanWriteAreNotUsed) {
  const KernelCache cache = cache_with(counting_compiler());
  const auto kernels = cache.get({adding(1)}, 1);
  ASSERT_TRUE(kernels.front());
  const std::vector<std::string> files = {index_of(cache, adding(1)), kernels.front()->path};
  for (const std::string& file : files) {
    const size_t before = calls();
    ASSERT_EQ(chmod(file.c_str(), 0666), 0);
    EXPECT_TRUE(cache.get({adding(1)}, 1).front());
    EXPECT_EQ(calls(), before + 1) << file;
  }
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot make another user's files";
  for (const std::string& file : files) {
    const size_t before = calls();
    ASSERT_EQ(chown(file.c_str(), kNobody, kNobody), 0);
    EXPECT_TRUE(cache.get({adding(1)}, 1).front());
    EXPECT_EQ(calls(), before + 1) << file;
  }
  ASSERT_EQ(chown(path("cache").c_str(), kNobody, kNobody), 0);
  const auto refused = cache.get({adding(1)}, 1);
  ASSERT_FALSE(refused.front());
  EXPECT_TRUE(says(refused.front().error(), "belongs to user 65534")) << to_string(refused.front().error());
}

TEST_F(KernelCacheTest, AGroupsUmaskDoesNotMatter) {
  const mode_t before = umask(0);
  const auto kernels = cache_with(quick_compiler()).get({adding(1)}, 1);
  umask(before);
  EXPECT_EQ(call(kernels.front(), 1), 2);
  EXPECT_TRUE(finding_cache().get({adding(1)}, 1).front());
}

TEST_F(KernelCacheTest, ACompilerThatHangsIsKilled) {
  const KernelCache cache = cache_with(pretended_compiler("sleep 600"), {.seconds = 0.1, .batch = 2});
  const auto kernels = cache.get({adding(1), adding(2)}, 2);
  for (const auto& kernel : kernels) {
    ASSERT_FALSE(kernel);
    EXPECT_TRUE(says(kernel.error(), "the compiler was killed after 0.1 s")) << to_string(kernel.error());
  }
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(KernelCacheTest, ACompilerThatCrashesOrWritesNothingIsReported) {
  const auto crashed = cache_with(pretended_compiler("kill -SEGV $$")).get({adding(1)}, 1);
  EXPECT_TRUE(says(crashed.front().error(), "signal 11")) << to_string(crashed.front().error());
  const auto idle = cache_with(pretended_compiler("true")).get({adding(1)}, 1);
  EXPECT_TRUE(says(idle.front().error(), "made no object")) << to_string(idle.front().error());
  const auto absent = finding_cache().get({adding(1), adding(2)}, 1);
  EXPECT_EQ(absent[1].error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(says(absent[1].error(), "/no/compiler")) << to_string(absent[1].error());
}

TEST_F(KernelCacheTest, AFullDiskIsNotAKernelError) {
  const std::string script =
      "echo >>$calls; echo \"fatal error: error writing to $out: No space left on device\" >&2; exit 1";
  const auto kernels = cache_with(pretended_compiler(script)).get(adding_up_to(8), 1);
  EXPECT_EQ(calls(), 1U) << "no search for the failing kernel";
  for (const auto& kernel : kernels) {
    ASSERT_FALSE(kernel);
    EXPECT_TRUE(says(kernel.error(), "no space left")) << to_string(kernel.error());
    EXPECT_TRUE(says(kernel.error(), "MILLRACE_CACHE_DIR")) << to_string(kernel.error());
  }
}

TEST_F(KernelCacheTest, DisksOfManySizesThatFillUp) {
  // File systems of all sizes up to one that is large enough, mounted in a namespace of that process.
  const KernelCache cache = cache_with(pretended_compiler("head -c 12000 /dev/zero >$out"));
  fs::create_directory(path("cache"));
  constexpr int kCannotMount = 77;
  const pid_t filler = in_another_process([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return kCannotMount;
    bool fits = false;
    for (int pages = 1; !fits; ++pages) {
      if (pages > 100) return 1;
      const std::string size = concat("mode=700,size=", pages * sysconf(_SC_PAGESIZE));
      if (mount("none", path("cache").c_str(), "tmpfs", 0, size.c_str()) != 0) return kCannotMount;
      const auto kernels = cache.get(adding_up_to(4), 1);
      fits = static_cast<bool>(kernels[0]);
      for (const auto& kernel : kernels) {
        if (static_cast<bool>(kernel) != fits) return 2;
        if (!kernel && !says(kernel.error(), "MILLRACE_CACHE_DIR")) return 3;
        if (!kernel && !says(kernel.error(), "o space left")) return 4;
      }
      if (temporaries() != 0) return 5;
      umount(path("cache").c_str());
    }
    return 0;
  });
  const int code = exit_code(filler);
  if (code == kCannotMount) GTEST_SKIP() << "not allowed to mount a small file system";
  EXPECT_EQ(code, 0);
}

TEST_F(KernelCacheTest, ADirectoryThatCannotBeCreatedIsReported) {
  const KernelCache cache("/proc/millrace", quick_compiler(), "", "cpu");
  const auto kernels = cache.get({adding(1), adding(2)}, 1);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_TRUE(says(kernels[1].error(), "/proc/millrace")) << to_string(kernels[1].error());
  EXPECT_FALSE(cache.compile_together({adding(1)}, path("x.so")));
}

TEST_F(KernelCacheTest, AReadOnlyDirectoryServesItsKernels) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot become another user";
  const KernelCache cache = cache_with(counting_compiler());
  ASSERT_TRUE(cache.get({adding(1)}, 1).front());
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  for (const auto& entry : fs::directory_iterator(path("cache")))
    ASSERT_EQ(chown(entry.path().c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(chown(path("cache").c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(chmod(path("cache").c_str(), 0500), 0);
  const pid_t reader = in_another_process([&] {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return 2;
    const auto kernels = cache.get({adding(1), adding(2)}, 1);
    if (!kernels[0]) return 3;
    if (kernels[1]) return 4;
    return says(kernels[1].error(), "cannot write to") && says(kernels[1].error(), "MILLRACE_CACHE_DIR") ? 0 : 5;
  });
  EXPECT_EQ(exit_code(reader), 0);
  ASSERT_EQ(chmod(path("cache").c_str(), 0700), 0);
}

TEST_F(KernelCacheTest, TwoProcessesFillOneCacheAtOnce) {
  const KernelCache cache = cache_with(quick_compiler(), {.seconds = 120, .batch = 3});
  const std::vector<KernelSource> sources = adding_up_to(6);
  const auto fill = [&] {
    const auto kernels = cache.get(sources, 1);
    for (int k = 0; k < 6; ++k)
      if (call(kernels[static_cast<size_t>(k)], 1) != 1 + k) return 1;
    return 0;
  };
  const pid_t first = in_another_process(fill);
  const pid_t second = in_another_process(fill);
  EXPECT_EQ(exit_code(first), 0);
  EXPECT_EQ(exit_code(second), 0);
  const auto found = finding_cache().get(sources, 1);
  for (int k = 0; k < 6; ++k) EXPECT_EQ(call(found[static_cast<size_t>(k)], 1), 1 + k);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(KernelCacheTest, ThreadsShareACache) {
  // Several threads write the same object under the same name.
  const KernelCache cache = cache_with(counting_compiler(), {.seconds = 120, .batch = 2});
  const std::vector<KernelSource> sources = adding_up_to(8);
  std::vector<size_t> made(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < made.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const auto& kernel : cache.get(sources, 3)) made[t] += kernel ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, std::vector<size_t>(4, 8));
  const size_t before = calls();
  for (const auto& kernel : cache.get(sources, 1)) EXPECT_TRUE(kernel);
  EXPECT_EQ(calls(), before);
}

TEST_F(KernelCacheTest, OldFilesOfKilledProcessesAreRemoved) {
  const KernelCache cache = cache_with(pretended_compiler("echo >>$calls; echo half >$out; sleep 600"));
  const pid_t victim = in_another_process([&] { return cache.get({adding(1)}, 1).front() ? 0 : 1; });
  while (calls() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(exit_code(victim), -1);
  EXPECT_EQ(temporaries(), 1U);

  const KernelCache working = cache_with(counting_compiler());
  EXPECT_TRUE(working.get({adding(1)}, 1).front());
  EXPECT_EQ(temporaries(), 1U) << "its process may still be running";
  for (const auto& entry : fs::directory_iterator(path("cache")))
    if (entry.is_directory()) fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_TRUE(working.get({adding(2)}, 1).front());
  EXPECT_EQ(temporaries(), 0U);
}

// The plan of 420 operators in two kernels took 25 s to compile, with a budget of 5 s.
TEST_F(KernelCacheTest, LongKernelsAreCompiledApartAndWithFewerPasses) {
  const KernelCache cache = cache_with(pretended_compiler("echo \"$@\" >>$calls; echo an object >$out"));
  KernelSource long_kernel = adding(3);
  long_kernel.text += concat("// ", std::string(20'000, 'x'));
  const auto made = cache.get({adding(1), long_kernel, adding(2)}, 1);
  EXPECT_TRUE(std::all_of(made.begin(), made.end(), [](const auto& kernel) { return static_cast<bool>(kernel); }));
  ASSERT_TRUE(cache.compile_together({adding(1), long_kernel, adding(2)}, path("plan.so"), 1));
  const std::vector<std::string> calls = split(*read_file(path("calls"), 1 << 20), '\n');
  const auto is_long = [](const std::string& line) { return line.find("-O2") != std::string::npos; };
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), is_long), 2);
  EXPECT_EQ(calls.size(), 6U) << "two and two compilations, a link, and the end of the file";
}

TEST_F(KernelCacheTest, TogetherInOneObject) {
  const KernelCache cache = cache_with(quick_compiler());
  const Result<std::string> hash = cache.compile_together({adding(1), adding(2), adding(1)}, path("plan.so"));
  ASSERT_TRUE(hash) << to_string(hash.error());
  EXPECT_EQ(*hash, sha256(*read_file(path("plan.so"), 1 << 24)));
  for (int k = 1; k < 3; ++k)
    EXPECT_EQ(call(CompiledKernel{cache.name_of(adding(k)), path("plan.so"), *hash}, 5), 5 + k);
  const Result<KernelModule> module = KernelModule::load(path("plan.so"), *hash);
  ASSERT_TRUE(module);
  EXPECT_FALSE(module->function(cache.name_of(adding(3))));
  // After a failure the old file is still there.
  const KernelSource bad{"extern \"C\" int MILLRACE_KERNEL(int x) { return y; }"};
  const Result<std::string> failed = cache.compile_together({adding(1), bad}, path("plan.so"));
  ASSERT_FALSE(failed);
  EXPECT_TRUE(says(failed.error(), cache.name_of(bad))) << to_string(failed.error());
  EXPECT_EQ(*hash, sha256(*read_file(path("plan.so"), 1 << 24)));
  EXPECT_FALSE(cache.compile_together({adding(1)}, path("absent/plan.so")));
  EXPECT_EQ(temporaries(), 0U);
}

}  // namespace
}  // namespace millrace
