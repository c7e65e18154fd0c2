package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

// Report tells systemd that the service is ready once /readyz says so, and then that it is alive, until ctx ends.
//
// systemd restarts a service that isn't alive, so only problems that a restart fixes count: a listener that accepts
// nothing, or an error of works. Visitors can't cause them: control is the control plane's listener.
func (n Notifier) Report(ctx context.Context, control net.Addr, works func(context.Context) error, log *slog.Logger) {
	if !n.Listens() {
		return
	}
	for asked := time.NewTicker(100 * time.Millisecond); ; {
		if err := answers(ctx, control, "/readyz", http.StatusOK); err == nil {
			asked.Stop()
			break
		}
		select {
		case <-asked.C:
		case <-ctx.Done():
			asked.Stop()
			return
		}
	}
	told(ctx, log, n.Ready())
	if n.Watchdog() == 0 {
		return
	}
	look := time.NewTicker(n.Watchdog() / 4)
	defer look.Stop()
	for {
		if err := n.alive(ctx, control, works); err != nil {
			log.ErrorContext(ctx, "the service does not answer itself; systemd restarts it if that goes on", "err", err)
		} else {
			told(ctx, log, n.Alive())
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive returns an error if the service has a problem that a restart fixes.
func (n Notifier) alive(ctx context.Context, control net.Addr, works func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.Watchdog()/4)
	defer cancel()
	if err := works(ctx); err != nil {
		return err
	}
	return answers(ctx, control, "/healthz", 0)
}

// answers requests path from the service itself. If want is 0, any status is fine, and so is a connection closed at
// once: the limiter accepted and refused it.
func answers(ctx context.Context, at net.Addr, path string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	accepted := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { accepted = true }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	res, err := client.Do(r)
	if err != nil && want == 0 && accepted && ctx.Err() == nil { // net/http has several errors for it, not all of them exported
		return nil
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if want != 0 && res.StatusCode != want {
		return fmt.Errorf("%s: %s", path, res.Status)
	}
	return nil
}

// told logs that systemd couldn't be notified.
func told(ctx context.Context, log *slog.Logger, err error) {
	if err != nil {
		log.WarnContext(ctx, "systemd is not told", "err", err)
	}
}
