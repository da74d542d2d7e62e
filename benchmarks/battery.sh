#!/bin/sh
# The tests of dieharder that it calls good, on three kinds of streams of the generator: 20 p-values a test
# instead of 100, and one length of tuples where it would try many (only one lag of sums).
#
#     sh benchmarks/battery.sh >benchmarks/results/generator.txt
export PYTHONWARNINGS=ignore
dieharder -d 0 -p 1 -g 13 | grep version
for keys in one folded split; do
  echo "streams: $keys"
  for test in 0 1 2 3 4 8 9 10 11 12 13 15 16 17 100 101 102 "200 -n 3" "201 -n 3" "202 -n 4" "203 -n 7" 204 205 206 207 208 209; do
    python -m benchmarks.generator --keys $keys --words 1000 --seed $((100 + ${test%% *})) |
      dieharder -g 200 -p 20 -d $test | grep -E 'PASSED|WEAK|FAILED'
  done
done
