#include "device/cpu/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/scratch.h"

namespace millrace {
namespace {

class CpuInfoTest : public ScratchTest {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    ASSERT_TRUE(write_file(path(name), text + "\n"));
  }
};

TEST_F(CpuInfoTest, ThisMachine) {
  const CpuInfo info = cpu_info();
  EXPECT_FALSE(info.model.empty());
  EXPECT_NE(info.model, "unknown");
  EXPECT_FALSE(info.features.empty());
  EXPECT_GE(info.cores, 1);
  EXPECT_GE(info.last_level_cache, 1 << 15);
  EXPECT_GE(info.memory, int64_t{1} << 26);
  EXPECT_TRUE(info.identity().starts_with(info.model + " "));
}

TEST_F(CpuInfoTest, ModelNames) {
  const CpuModel intel = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"
      "flags\t\t: fpu avx512f\n\nprocessor\t: 1\nmodel name\t: another\n");
  EXPECT_EQ(intel.model, "Intel(R) Xeon(R) Platinum 8480+");
  EXPECT_EQ(intel.features, "fpu avx512f");
  const CpuModel arm = parse_cpuinfo(
      "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n");
  EXPECT_EQ(arm.model, "Neoverse-V1");
  EXPECT_EQ(arm.features, "fp asimd sve");
  EXPECT_EQ(parse_cpuinfo("CPU implementer : 0x41\nCPU part : 0xfff\n").model, "0x41-0xfff");
  EXPECT_EQ(parse_cpuinfo("").model, "unknown");
  EXPECT_EQ(parse_cpuinfo("no colon\n:\n::\n").model, "unknown");
}

TEST_F(CpuInfoTest, MachinesOfOneModelWithOtherFeaturesAreNotTheSame) {
  CpuInfo first;
  first.model = "x";
  first.features = "avx2 avx512f";
  CpuInfo second = first;
  EXPECT_EQ(first.identity(), second.identity());
  second.features = "avx2";
  EXPECT_NE(first.identity(), second.identity());
}

TEST_F(CpuInfoTest, TheLastLevelThatHoldsData) {
  EXPECT_EQ(last_level_cache(path("absent")), 32 << 20);
  const auto level = [&](int k, const std::string& number, const std::string& type, const std::string& size) {
    put(concat("index", k, "/level"), number);
    put(concat("index", k, "/type"), type);
    put(concat("index", k, "/size"), size);
  };
  level(0, "1", "Data", "64K");
  EXPECT_EQ(last_level_cache(folder_.string()), 64 << 10);
  level(1, "2", "Unified", "1M");
  level(2, "3", "Instruction", "8M");
  EXPECT_EQ(last_level_cache(folder_.string()), 1 << 20);
  level(3, "3", "Unified", "nonsense");
  EXPECT_EQ(last_level_cache(folder_.string()), 1 << 20);
  level(3, "3", "Unified", "32768K");
  EXPECT_EQ(last_level_cache(folder_.string()), 32768 << 10);
}

TEST_F(CpuInfoTest, CgroupVersion2Limits) {
  EXPECT_EQ(group_limits("0::/a/b\n", folder_.string()).cores, 0);
  put("cpu.max", "max 100000");
  put("a/cpu.max", "250000 100000");
  put("a/b/cpu.max", "max 100000");
  put("a/memory.max", "1000000");
  put("a/b/memory.max", "max");
  const GroupLimits limits = group_limits("0::/a/b\n", folder_.string());
  EXPECT_EQ(limits.cores, 2.5);
  EXPECT_EQ(limits.memory, 1'000'000);
  put("a/b/cpu.max", "50000 100000");
  EXPECT_EQ(group_limits("0::/a/b\n", folder_.string()).cores, 0.5);
  EXPECT_EQ(group_limits("0::/", folder_.string()).cores, 0);
  EXPECT_EQ(group_limits("0::/../a", folder_.string()).cores, 0);
  EXPECT_EQ(group_limits("nonsense\n0:\n::\n", folder_.string()).cores, 0);
}

TEST_F(CpuInfoTest, CgroupVersion1Limits) {
  put("cpu,cpuacct/box/cpu.cfs_quota_us", "300000");
  put("cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  put("cpu,cpuacct/cpu.cfs_quota_us", "-1");
  put("cpu,cpuacct/cpu.cfs_period_us", "100000");
  put("memory/box/memory.limit_in_bytes", "2000");
  put("memory/memory.limit_in_bytes", "9223372036854771712");
  const GroupLimits limits = group_limits("5:cpu,cpuacct:/box\n4:memory:/box\n", folder_.string());
  EXPECT_EQ(limits.cores, 3);
  EXPECT_EQ(limits.memory, 2000);
}

TEST_F(CpuInfoTest, UsesTheNumberOfThreadsThatTheUserSets) {
  set_variable("OMP_NUM_THREADS", std::nullopt);
  const int cores = cpu_info().cores;
  EXPECT_EQ(threads(), cores);
  set_variable("OMP_NUM_THREADS", std::to_string(cores + 3));
  EXPECT_EQ(threads(), cores + 3);
  set_variable("OMP_NUM_THREADS", " 5 ,2");
  EXPECT_EQ(threads(), 5);
  for (const char* nonsense : {"", "0", "-2", "many", "3x", "99999999999999999999", "70000"}) {
    set_variable("OMP_NUM_THREADS", nonsense);
    EXPECT_EQ(threads(), cores) << nonsense;
  }
}

TEST_F(CpuInfoTest, UsesNoMoreThreadsThanOpenMpAllows) {
  set_variable("OMP_NUM_THREADS", "5");
  set_variable("OMP_THREAD_LIMIT", "2");
  EXPECT_EQ(threads(), 2);
  set_variable("OMP_THREAD_LIMIT", "8");
  EXPECT_EQ(threads(), 5);
  for (const char* nonsense : {"", "0", "-2", "many"}) {
    set_variable("OMP_THREAD_LIMIT", nonsense);
    EXPECT_EQ(threads(), 5) << nonsense;
  }
}

TEST_F(CpuInfoTest, CoresByAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cpu_info().cores, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace millrace
