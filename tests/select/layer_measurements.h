// Measurements like those of a BERT layer's training step, with modelled times: bytes divided by bandwidth, slower for
// layouts that do not match, and a little noise.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/measurements.h"

namespace millrace {
inline constexpr double kBandwidth = 3e12;
inline constexpr double kFlops = 4e14;
inline constexpr double kLaunch = 2e-6;

class LayerMeasurements {
 public:
  explicit LayerMeasurements(unsigned seed) : random_(seed) {}

  Measurements make() {
    forward();
    backward();
    add_conversions();
    return std::move(made_);
  }

 private:
  using Names = std::vector<std::string>;

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  double noise(double most) { return 1 + most * below(1'000'000) * 1e-6; }

  static double extent(char axis) {
    static const std::map<char, double> kExtents = {{'b', 8},  {'j', 512},  {'k', 512},  {'h', 16},
                                                    {'p', 64}, {'i', 1024}, {'u', 4096}, {'s', 3}};
    return kExtents.at(axis);
  }

  struct Info {
    std::string axes;
    double bytes = 2;
  };

  // "x:bji" declares a tensor with its axes; a known name needs none.
  int tensor(const std::string& text) {
    const std::string name = text.substr(0, text.find(':'));
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    MeasuredTensor made;
    made.name = name;
    Info info;
    info.axes = text.substr(text.find(':') + 1);
    for (const char axis : info.axes) info.bytes *= extent(axis);
    std::string order = info.axes;
    std::sort(order.begin(), order.end());
    do {
      made.layouts.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
    if (name[0] == 'm') made.layouts.insert(made.layouts.end(), {"bits", "regenerated"});
    const bool pinned =
        name[0] == 'w' || name.starts_with("dw") || name == "x" || name == "dx" || name == "y" || name == "dy";
    if (pinned) made.pinned = 0;
    const int number = static_cast<int>(made_.tensors.size());
    numbers_[name] = number;
    made_.tensors.push_back(std::move(made));
    infos_.push_back(info);
    return number;
  }

  const std::string& layout(int tensor, int number) const {
    return made_.tensors[static_cast<size_t>(tensor)].layouts[static_cast<size_t>(number)];
  }

  // Layouts that follow one order of all axes, with occasional exceptions.
  std::vector<int> some_layouts(const std::vector<int>& tensors) {
    std::string order = "bjkhpius";
    for (size_t k = order.size() - 1; k > 0; --k)
      std::swap(order[k], order[static_cast<size_t>(below(static_cast<int>(k) + 1))]);
    const bool pure = below(5) < 3;
    std::vector<int> result;
    for (const int t : tensors) {
      const auto& layouts = made_.tensors[static_cast<size_t>(t)].layouts;
      std::string axes = infos_[static_cast<size_t>(t)].axes;
      std::sort(axes.begin(), axes.end(), [&](char a, char b) { return order.find(a) < order.find(b); });
      int number = static_cast<int>(std::find(layouts.begin(), layouts.end(), axes) - layouts.begin());
      if (!pure && below(3) == 0) number = below(static_cast<int>(layouts.size()));
      result.push_back(number);
    }
    return result;
  }

  // Bytes divided by bandwidth, more if the innermost axes differ.
  double moving_seconds(const std::vector<int>& tensors, const std::vector<int>& layouts) {
    size_t largest = 0;
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (bytes(tensors[k]) > bytes(tensors[largest])) largest = k;
    }
    const std::string& main = layout(tensors[largest], layouts[largest]);
    double seconds = kLaunch;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const std::string& own = layout(tensors[k], layouts[k]);
      double factor = 1;
      if (own == "bits")
        factor = 1.0 / 16;
      else if (own == "regenerated")
        factor = 0.15;
      else if (own.back() != main.back())
        factor = 1.8;
      else if (own.size() > 1 && main.size() > 1 && own[own.size() - 2] != main[main.size() - 2])
        factor = 1.15;
      seconds += factor * bytes(tensors[k]) / kBandwidth;
    }
    return seconds * noise(0.04);
  }

  // A library is slower with some operands transposed than with others: it depends on which axis is innermost.
  double multiplying(const std::vector<int>& tensors, const std::vector<int>& layouts) {
    double factor = 1;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const auto [entry, fresh] = transposed_.try_emplace({tensors[k], layout(tensors[k], layouts[k]).back()}, 0.0);
      if (fresh) entry->second = noise(0.12);
      factor *= entry->second;
    }
    return factor;
  }

  double bytes(int tensor) const { return infos_[static_cast<size_t>(tensor)].bytes; }

  int partition(const std::string& name, const Names& reads, const Names& writes, bool product) {
    MeasuredPartition made;
    made.name = name;
    made.backward = backward_;
    for (const std::string& text : reads) made.reads.push_back(tensor(text));
    for (const std::string& text : writes) made.writes.push_back(tensor(text));
    std::vector<int> tensors = made.reads;
    tensors.insert(tensors.end(), made.writes.begin(), made.writes.end());
    std::set<char> axes;
    for (const int t : tensors)
      axes.insert(infos_[static_cast<size_t>(t)].axes.begin(), infos_[static_cast<size_t>(t)].axes.end());
    double flops = 2;
    // Projections of keys and values run over k, those of queries over j.
    if (axes.contains('i')) axes.erase('k');
    for (const char axis : axes) flops *= extent(axis);
    const int tries = product ? 60 + below(140) : 40 + below(360);
    std::set<std::vector<int>> known;
    for (int k = 0; k < tries; ++k) {
      MeasuredCandidate candidate;
      candidate.layouts = some_layouts(tensors);
      if (!known.insert(candidate.layouts).second) continue;
      candidate.candidate = concat("candidate ", k);
      candidate.seconds = moving_seconds(tensors, candidate.layouts);
      if (product)
        candidate.seconds =
            std::max(candidate.seconds, flops / kFlops * multiplying(tensors, candidate.layouts) * noise(0.03));
      candidate.low = 0.99 * candidate.seconds;
      candidate.high = 1.01 * candidate.seconds;
      made.candidates.push_back(std::move(candidate));
    }
    made_.partitions.push_back(std::move(made));
    return static_cast<int>(made_.partitions.size()) - 1;
  }

  void product(const std::string& name, const Names& reads, const std::string& write) {
    made_.choice_points.push_back({{{partition(name, reads, {write}, true)}}});
  }

  // A fused operator, or its members one by one: each reads its predecessor's output and its share of the rest.
  void kernel(const std::string& name, const Names& reads, const Names& writes, int members) {
    MeasuredChoicePoint choice_point;
    choice_point.alternatives.push_back({partition(name, reads, writes, false)});
    choice_point.alternatives.emplace_back();
    std::string before;
    for (int k = 0; k < members; ++k) {
      Names own_reads;
      Names own_writes;
      for (size_t x = 0; x < reads.size(); ++x) {
        if (static_cast<int>(x) % members == k) own_reads.push_back(reads[x]);
      }
      for (size_t x = 0; x < writes.size(); ++x) {
        if (members - 1 - static_cast<int>(x) % members == k) own_writes.push_back(writes[x]);
      }
      if (!before.empty()) own_reads.push_back(before);
      if (k + 1 < members) {
        before = concat("interim ", name, k, ":", infos_[static_cast<size_t>(tensor(reads[0]))].axes);
        own_writes.push_back(before);
      }
      choice_point.alternatives[1].push_back(partition(concat(name, " member ", k), own_reads, own_writes, false));
    }
    made_.choice_points.push_back(std::move(choice_point));
  }

  void forward() {
    const int q = partition("q", {"x:bji", "wq:hpi"}, {"qq:bhjp"}, true);
    const int k = partition("k", {"x", "wk:hpi"}, {"kk:bhkp"}, true);
    const int v = partition("v", {"x", "wv:hpi"}, {"vv:bhkp"}, true);
    const int kv = partition("k and v", {"x", "wk", "wv"}, {"kk", "vv"}, true);
    const int qkv = partition("q, k and v", {"x", "wq", "wk", "wv"}, {"qq", "kk", "vv"}, true);
    made_.choice_points.push_back({{{q, k, v}, {q, kv}, {qkv}}});
    kernel("AIB", {"qq", "kk", "vv", "wbq:hp", "wbk:hp", "wbv:hp"}, {"qb:bhjp", "kb:bhkp", "vb:bhkp"}, 3);
    product("QKT", {"qb", "kb"}, "beta:bhjk");
    kernel("SM", {"beta"}, {"alpha:bhjk", "soft:bhjk", "mask1:bhjk"}, 3);
    product("Gamma", {"alpha", "vb"}, "gam:bhjp");
    product("Out", {"gam", "wo:hpi"}, "att:bji");
    kernel("DRLN", {"att", "wbo:i", "x", "wg1:i", "wb1:i"}, {"sb1:bji", "ln1:bji", "mask2:bji", "st1:bj"}, 4);
    product("Lin1", {"ln1", "w1:ui"}, "a1:bju");
    kernel("BRD", {"a1", "wb1u:u"}, {"ff:bju", "mask3:bju"}, 3);
    product("Lin2", {"ff", "w2:iu"}, "a2:bji");
    kernel("BDRLN", {"a2", "wb2:i", "ln1", "wg2:i", "wb3:i"}, {"y:bji", "sb2:bji", "mask4:bji", "st2:bj"}, 4);
  }

  void backward() {
    backward_ = true;
    kernel("BSB", {"dy:bji", "sb2", "wg2"}, {"dsb2:bji", "dwg2:i", "dwb3:i"}, 3);
    kernel("BLNRD", {"dsb2", "st2", "sb2", "mask4"}, {"dr2:bji", "da2:bji"}, 3);
    product("Lin2 dX", {"da2", "w2"}, "dff:bju");
    product("Lin2 dW", {"da2", "ff"}, "dw2:iu");
    kernel("BDRB", {"dff", "mask3", "a1"}, {"da1:bju", "dwb1u:u", "dwb2:i"}, 3);
    product("Lin1 dX", {"da1", "w1"}, "dl1:bji");
    product("Lin1 dW", {"da1", "ln1"}, "dw1:ui");
    kernel("EBSB", {"dl1", "dr2", "sb1", "wg1"}, {"dln1:bji", "dwg1:i", "dwb1:i"}, 4);
    kernel("BLNRD 2", {"dln1", "st1", "sb1", "mask2"}, {"dr1:bji", "datt:bji"}, 3);
    product("Out dX", {"datt", "wo"}, "dgam:bhjp");
    product("Out dW", {"datt", "gam"}, "dwo:hpi");
    product("Gamma dX1", {"dgam", "vb"}, "dalpha:bhjk");
    product("Gamma dX2", {"dgam", "alpha"}, "dvb:bhkp");
    kernel("BS", {"dalpha", "soft", "mask1"}, {"dbeta:bhjk"}, 3);
    product("QKT dX1", {"dbeta", "kb"}, "dqb:bhjp");
    product("QKT dX2", {"dbeta", "qb"}, "dkb:bhkp");
    kernel("BAIB", {"dqb", "dkb", "dvb"}, {"dwbq:hp", "dwbk:hp", "dwbv:hp"}, 3);
    for (const std::string n : {"q", "k", "v"}) {
      product("d" + n + " dW", {"d" + n + "b", "x"}, "dw" + n + ":hpi");
      product("d" + n + " dX", {"d" + n + "b", "w" + n}, "dx" + n + ":bji");
    }
    kernel("BEI", {"dxq", "dxk", "dxv", "dr1"}, {"dx:bji"}, 3);
  }

  void add_conversions() {
    for (size_t t = 0; t < made_.tensors.size(); ++t) {
      const auto& layouts = made_.tensors[t].layouts;
      for (size_t from = 0; from < layouts.size(); ++from) {
        for (size_t to = 0; to < layouts.size(); ++to) {
          const bool word =
              layouts[from].size() == infos_[t].axes.size() && layouts[to].size() == infos_[t].axes.size();
          const bool same = layouts[from] == "bits" || layouts[from] == "regenerated" || layouts[to] == "bits" ||
                            layouts[to] == "regenerated";
          if (from == to || !word || same) continue;
          const double factor = layouts[from].back() == layouts[to].back() ? 2.0 : 2.6;
          made_.conversions.push_back({static_cast<int>(t), static_cast<int>(from), static_cast<int>(to),
                                       (kLaunch + factor * infos_[t].bytes / kBandwidth) * noise(0.1)});
        }
      }
    }
  }

  std::mt19937 random_;
  bool backward_ = false;
  Measurements made_;
  std::vector<Info> infos_;
  std::map<std::pair<int, char>, double> transposed_;
  std::map<std::string, int> numbers_;
};

// Depends only on the seed, on every machine.
inline Measurements layer_measurements(unsigned seed) { return LayerMeasurements(seed).make(); }

}  // namespace millrace
