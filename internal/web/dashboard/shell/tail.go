package shell

import "time"

// Progress is the result of reading a log for new lines.
type Progress int

const (
	Unchanged Progress = iota // nothing was sent
	Sent
	Unfinished // something was sent, and more is available
	Ended      // the last event was sent
)

// tailPoll is the polling interval without notifications.
const tailPoll = 2 * time.Second

// Tail streams a log: it calls look at once, on each notification and every tailPoll, until look returns Ended or the
// browser is gone. The caller subscribes to wake before, so that no line is missed.
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
