package db

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A Time's text equals time.Format's for any value.
func TestTimeIsShownAsFormatShowsIt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	times := []Time{
		0,
		1,
		-1,
		951782400000,
		1709164799999,
		253402300799999,
		253402300800000,
		-62135596800000,
		-62167219200001,
		1 << 60,
		-1 << 60,
	}
	for range 2000 {
		times = append(times, Time(r.Int64N(1<<48)-1<<44))
	}
	for _, at := range times {
		want := time.Time{}
		if at != 0 {
			want = time.UnixMilli(int64(at)).UTC()
		}
		if got, want := at.String(), want.Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("%d: %s, want %s", int64(at), got, want)
		}
	}
}
