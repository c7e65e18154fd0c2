package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"slipway/internal/connlimit"
)

// places is how many connections each listener may hold, out of the file descriptors
// that the process may have.
type places struct {
	edge, edgeAddress, edgeSpare int
	control, controlAddress      int
}

// planPlaces divides the descriptors: a part is kept back for the control plane, the
// database, files and child processes, so that visitors of sites cannot use them up. max
// and perAddress are the operator's settings; 0 means what fits.
func planPlaces(descriptors uint64, max, perAddress int) places {
	n := int(min(descriptors, 1<<20))
	back := min(2048, n/2)
	var p places
	p.edge = min(n-back, 100_000)
	if max > 0 {
		p.edge = min(max, n-back)
	}
	p.edgeSpare = min(256, p.edge/8)
	p.edgeAddress = perAddress
	if perAddress == 0 {
		p.edgeAddress = p.edge / 8
	}
	p.control = back / 2
	p.controlAddress = p.control / 2
	return p
}

// descriptors is how many files the process may have open.
func descriptors() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	return limit.Cur, nil
}

// limit puts the listeners under their limits.
func (h *node) limit(l listeners) (listeners, error) {
	n, err := descriptors()
	if err != nil {
		return l, err
	}
	p := planPlaces(n, h.s.MaxConnections, h.s.MaxConnectionsPerAddress)
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_connections_refused_total", Help: "Connections closed because there were too many, by listener and limit."}, []string{"listener", "limit"})
	h.metrics.MustRegister(refused)
	limiter := func(name string, total, perAddress, spare int) *connlimit.Limiter {
		limiter := connlimit.New(connlimit.Config{Total: total, PerAddress: perAddress, Spare: spare, Exempt: h.s.proxies,
			OnRefused: func(reason string) { refused.WithLabelValues(name, reason).Inc() }})
		h.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_connections", Help: "Connections that are open, by listener.", ConstLabels: prometheus.Labels{"listener": name}},
			func() float64 { return float64(limiter.Len()) }))
		return limiter
	}
	if l.control != nil {
		l.control = limiter("control", p.control, p.controlAddress, 0).Listen(l.control)
	}
	sites := limiter("edge", p.edge, p.edgeAddress, p.edgeSpare)
	if l.http != nil {
		l.http = sites.Listen(l.http)
	}
	if l.https != nil {
		l.https = sites.Listen(l.https)
	}
	l.limits = sites
	return l, nil
}
