package delivery

import (
	"testing"
)

func TestCheckHop(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{
		"":                     0,
		"0":                    0,
		"1":                    1,
		"2":                    2,
		"3":                    -1,
		"99":                   -1,
		"-1":                   -1,
		"x":                    -1,
		"1.5":                  -1,
		"99999999999999999999": -1,
	} {
		got, err := CheckHop(in)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("CheckHop(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
}
