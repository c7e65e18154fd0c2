package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While a program answers with server errors, the caller of Start must get a message about each different answer, but
// not one per check. The deployment must go live as soon as the program is healthy.
func TestHealthSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.want.HealthPath = "/ready"
		w.engine.status = 503
		var said []string
		done := make(chan error)
		go func() {
			release, err := w.apps.Start(t.Context(), "one", func(line string) { said = append(said, line) })
			if err == nil {
				release()
			}
			done <- err
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{"The application is not healthy yet: it answers /ready with 503. It has 1m0s in all to become healthy."}
		if !slices.Equal(said, want) {
			t.Errorf("the messages are %q, want %q", said, want)
		}
		w.engine.last().answer(500)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want = append(want, "The application is not healthy yet: it answers /ready with 500. It has 1m0s in all to become healthy.")
		if !slices.Equal(said, want) {
			t.Errorf("after another answer it said %q, want %q", said, want)
		}
		w.engine.last().answer(404) // every status but a server error counts as healthy
		if err := <-done; err != nil || len(said) != 2 {
			t.Errorf("Start = %v, said %q", err, said)
		}
		if n := w.engine.starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

// If PHP reports the same fatal error repeatedly, the start must fail with that error: the code is wrong. If the errors
// differ or stop, the start must wait until the time limit.
func TestFatalErrorRepeats(t *testing.T) {
	const parse = "PHP Parse error:  syntax error, unexpected end of file in /app/public/wp-content/themes/ours/functions.php on line 3"
	for name, tt := range map[string]struct {
		print func(i int) string
		took  time.Duration
		says  string
	}{
		"the same each time": {
			func(int) string { return "[23-Nov-2026 16:00:00 UTC] " + parse },
			15 * time.Second,
			"answers / with 500: " + parse,
		},
		"another each time": {func(i int) string { return fmt.Sprintf("%s %d", parse, i) }, time.Minute, "is not healthy after 1m0s: it answers / with 500: " + parse},
		"none":              {func(int) string { return "PHP Warning:  something" }, time.Minute, "is not healthy after 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.engine.status = 500
				done := make(chan error)
				begun := time.Now()
				go func() {
					_, err := w.apps.Start(t.Context(), "one", nil)
					done <- err
				}()
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case err := <-done:
						if code(err) != "application_unhealthy" || !strings.Contains(err.Error(), tt.says) {
							t.Errorf("Start = %v", err)
						}
						if took := time.Since(begun); took > tt.took+time.Second || took < tt.took-5*time.Second {
							t.Errorf("the start took %s, want %s", took, tt.took)
						}
						return
					case <-tick.C:
						w.engine.last().spec.Output("stderr", tt.print(i))
					}
				}
			})
		})
	}
}
