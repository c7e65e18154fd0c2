package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/connlimit"
)

// limit puts the listeners under their limits.
func (h *node) limit(l listeners) (listeners, error) {
	n, err := connlimit.Descriptors()
	if err != nil {
		return l, err
	}
	p := connlimit.Plan(n, h.s.MaxConnections, h.s.MaxConnectionsPerAddress)
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_connections_refused_total", Help: "Connections closed because there were too many, by listener and limit."}, []string{"listener", "limit"})
	h.metrics.MustRegister(refused)
	limiter := func(name string, total, perAddress, spare int) *connlimit.Limiter {
		limiter := connlimit.New(connlimit.Config{Total: total, PerAddress: perAddress, Spare: spare, Exempt: h.s.Proxies,
			OnRefused: func(reason string) { refused.WithLabelValues(name, reason).Inc() }})
		h.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_connections", Help: "Open connections, by listener.", ConstLabels: prometheus.Labels{"listener": name}},
			func() float64 { return float64(limiter.Len()) }))
		return limiter
	}
	if l.control != nil {
		l.control = limiter("control", p.Control, p.ControlAddress, 0).Listen(l.control)
	}
	sites := limiter("edge", p.Edge, p.EdgeAddress, p.EdgeSpare)
	if l.http != nil {
		l.http = sites.Listen(l.http)
	}
	if l.https != nil {
		l.https = sites.Listen(l.https)
	}
	l.limits = sites
	return l, nil
}
