package upgrade

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"slipway/internal/platform/db"
)

// maxCanaries is how many sites are asked.
const maxCanaries = 20

// client asks this machine alone, each time anew.
func client(dial string) *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, dial)
			},
			// The program's certificates may be its own authority's: what is asked is whether it answers.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// local is an address to ask a listener at.
func local(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func status(ctx context.Context, c *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, err
}

// readyz asks the service whether it is ready.
func (c Config) readyz(ctx context.Context) error {
	got, err := status(ctx, client(local(c.Control)), "http://slipway/readyz")
	if err != nil {
		return err
	}
	if got != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", got)
	}
	return nil
}

// canaries returns some sites and what they answer. One that does not answer can't tell of anything.
func (c Config) canaries(ctx context.Context) (list []Canary) {
	if c.Edge == "" {
		return nil
	}
	d, _, err := c.Store.Open(ctx, nil)
	if err != nil {
		return nil
	}
	defer d.Close()
	rows, err := d.Query(ctx, `SELECT host_label FROM live WHERE state = 'live' AND backend = 'files' ORDER BY version DESC LIMIT $1`,
		maxCanaries)
	labels, err := db.Collect(rows, err, func(s db.Scanner) (label string, err error) { return label, s.Scan(&label) })
	if err != nil {
		return nil
	}
	for _, l := range labels {
		host := l + "." + c.SiteDomain
		if got, err := status(ctx, client(local(c.Edge)), "https://"+host+"/"); err == nil && got < 500 {
			list = append(list, Canary{host, got})
		}
	}
	return list
}

// ready waits until the program at path serves and says that it is ready.
func (c Config) ready(ctx context.Context, path string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	why := errors.New("it does not run")
	for {
		pid, serves := c.Store.Serving()
		if serves {
			if err := runs(pid, path); err != nil {
				why = err
			} else if why = c.readyz(ctx); why == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was not ready within %s: %w", patience, why)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// runs returns an error unless the process runs the program that has the path now.
func runs(pid int, path string) error {
	exe, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	file, err := os.Stat(path)
	if err == nil && !os.SameFile(exe, file) {
		err = fmt.Errorf("process %d still runs another program", pid)
	}
	return err
}

// well watches a program that is ready: that it goes on running, stays ready, and that sites answer as before.
func (c Config) well(ctx context.Context, x State) error {
	first, _ := c.Store.Serving()
	var unready int
	for end := time.Now().Add(c.Watch); time.Now().Before(end); {
		pid, serves := c.Store.Serving()
		if !serves || pid != first {
			return errors.New("it ended by itself")
		}
		if err := c.readyz(ctx); err == nil {
			unready = 0
		} else if unready++; unready == 3 { // one slow answer is none of the program
			return fmt.Errorf("it is not ready any more: %w", err)
		}
		for _, site := range x.Sites {
			got, err := status(ctx, client(local(c.Edge)), "https://"+site.Host+"/")
			if err == nil && got < 500 {
				continue
			}
			if got, err = status(ctx, client(local(c.Edge)), "https://"+site.Host+"/"); err != nil {
				return fmt.Errorf("%s answered %d before, and now not at all: %w", site.Host, site.Status, err)
			}
			if got >= 500 {
				return fmt.Errorf("%s answered %d before, and now %d", site.Host, site.Status, got)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}
