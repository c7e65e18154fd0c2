package shell

import "testing"

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][2]string{
		0:              {"0", "0"},
		999:            {"999", "999"},
		1000:           {"1,000", "1k"},
		1204:           {"1,204", "1.2k"},
		99_949:         {"99,949", "99.9k"},
		100_000:        {"100,000", "100k"},
		999_999:        {"999,999", "1M"},
		5_600_000:      {"5,600,000", "5.6M"},
		12_345_678_901: {"12,345,678,901", "12.3G"},
	} {
		if got := [2]string{Thousands(n), Rough(n)}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]int64{0: 1, 1: 1, 3: 3, 7: 8, 10: 10, 11: 12, 96: 100, 101: 120, 3_570: 4_000, 81_000: 100_000} {
		if got := RoundTop(n); got != want {
			t.Errorf("the axis above %d ends at %d, want %d", n, got, want)
		}
	}
	if got := RoundBytes(170 << 20); got != 200<<20 {
		t.Errorf("the axis above 170 MiB ends at %s", BytesWord(got))
	}
	for n := int64(1); n < 1<<60; n = n*3 + 1 {
		if RoundTop(n) < n || RoundBytes(n) < n {
			t.Errorf("%d is above its axis", n)
		}
	}
}
