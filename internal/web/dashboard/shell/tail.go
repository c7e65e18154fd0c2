package shell

import "time"

// Progress is what a look at a log has come to.
type Progress int

const (
	Unchanged Progress = iota // nothing was sent
	Sent
	Unfinished // something was sent, and there is more already
	Ended      // the last event was sent
)

// tailPoll is how often a log is looked at without a wake.
const tailPoll = 2 * time.Second

// Tail streams a log: it looks at once, at each wake and every tailPoll, until look has sent its last event or the browser is gone.
// Its caller listens before: nothing falls between.
func Tail(e *Events, wake <-chan struct{}, look func() (Progress, error)) error {
	poll := time.NewTicker(tailPoll)
	defer poll.Stop()
	said := time.Now()
	for {
		if err := e.stays(); err != nil {
			return err
		}
		got, err := look()
		if err != nil || got == Ended {
			return err
		}
		if got != Unchanged {
			said = time.Now()
		}
		if got == Unfinished {
			continue
		}
		if time.Since(said) > Heartbeat {
			if err := e.Alive(); err != nil {
				return err
			}
			said = time.Now()
		}
		select {
		case <-e.Ctx.Done():
			return nil
		case <-wake:
		case <-poll.C:
		}
	}
}
