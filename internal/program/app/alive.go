package app

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// How often a program that runs is asked whether it answers, how long that may take, and how many failures in a row end it.
const (
	aliveEvery    = 10 * time.Second
	aliveTime     = 10 * time.Second
	aliveWait     = 30 * time.Second // of requests, before a program without a path of its health check is asked: it may be busy
	aliveFailures = 3
	hungGrace     = time.Second // after SIGTERM, which a program whose event loop hangs doesn't see
)

// keepAlive ends an instance that no longer answers, so that another one takes its place, and says why. It asks the health check's
// path where the settings name one; an answer of 5xx is a failure then. Else it asks for / while requests wait without any
// being answered, and each answer will do. PHP has a worker for each request, and is not asked.
func (p *program) keepAlive(in *instance) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-in.running.Done():
			return
		case <-in.ended:
			return
		case <-p.apps.down:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		want := p.want
		p.mu.Unlock()
		if want.PHP != nil || !in.answered.Load() && time.Since(in.begun) < want.Health {
			continue
		}
		if want.HealthPath == "" && failures == 0 && !in.waitsLong() {
			continue
		}
		why := in.asked(ctx, want)
		if why == "" {
			in.hasAnswered()
			failures = 0
			continue
		}
		if failures++; failures < aliveFailures {
			continue
		}
		why = fmt.Sprintf("The application %s, %d times in a row, and is started again", why, failures)
		in.hung.Store(why)
		p.apps.alerts.Hung(ctx, in.site, p.deployment, why)
		in.running.Stop(hungGrace)
		return
	}
}

// asked asks an instance whether it answers, and returns what is wrong.
func (in *instance) asked(ctx context.Context, want Wanted) string {
	ctx, cancel := context.WithTimeout(ctx, aliveTime)
	defer cancel()
	path := cmp.Or(want.HealthPath, "/")
	switch status, err := in.transport.Ask(ctx, want.Host, path); {
	case err != nil:
		return fmt.Sprintf("does not answer %s within %s", path, aliveTime)
	case status >= 500 && want.HealthPath != "":
		return fmt.Sprintf("answers %s with %d", path, status)
	}
	return ""
}

// waitsLong reports whether requests wait of which none has been answered for some time, or one got no answer lately.
func (in *instance) waitsLong() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.active > 0 && time.Since(in.used) >= aliveWait || !in.failed.IsZero() && time.Since(in.failed) < time.Minute
}
