package delivery

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A sender learns the addresses of host names from its connections, successful or failed.
func TestNamesOfOneAddress(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}, 4), make(chan struct{})
	r := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { held <- struct{}{}; <-release }))
	defer r.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0") // no server answers there
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	out := r.Client().Transport.(*http.Transport).Clone()
	out.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		to := r.Listener.Addr()
		if addr == "refused.example.com:443" {
			to = closed.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}
	defer out.CloseIdleConnections()
	s := &Sender{Hosts: NewHosts(), Out: out, Timeout: time.Minute}
	results := make(chan Result, 4)
	for i := range 4 {
		host := fmt.Sprintf("%d.example.com", i)
		go func() {
			results <- s.Send(t.Context(), &Request{Url: "https://" + host, Host: host, Owner: "usr_a", Body: []byte("{}")}, []string{"key"})
		}()
	}
	for range 4 {
		<-held
	}
	s.Hosts.mu.Lock()
	if n := s.Hosts.inFlight[networkOf(r.Listener.Addr())]; n != 4 {
		t.Errorf("%d in flight to the address of 4 names, want 4", n)
	}
	s.Hosts.mu.Unlock()
	close(release)
	for range 4 {
		if got := <-results; !got.Ok() {
			t.Errorf("%+v", got)
		}
	}
	refused := &Request{Url: "https://refused.example.com", Host: "refused.example.com", Owner: "usr_a"}
	if got := s.Send(t.Context(), refused, []string{"key"}); got.Err != ReasonConnect {
		t.Errorf("%+v", got)
	}
	if got := s.Hosts.lastNetwork("refused.example.com"); got != networkOf(closed.Addr()) || refused.Network != got {
		t.Errorf("a refused connection went to %q, noted as %q", got, refused.Network)
	}
}
