package edge

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	classes [6]prometheus.Counter // by first digit of the status
	bytes   prometheus.Counter
	caches  map[string]*[2]prometheus.Counter // misses, hits
	hosts   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_edge_requests_total", Help: "Answers to visitors of sites, by class of status.",
	}, []string{"class"})
	caches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_edge_cache_total", Help: "Cache lookups at the edge, by cache and result.",
	}, []string{"cache", "result"})
	m := metrics{
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_edge_response_bytes_total", Help: "Bytes of bodies sent to visitors of sites.",
		}),
		hosts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slipway_edge_hosts", Help: "Hosts in the edge's table.",
		}),
		caches: map[string]*[2]prometheus.Counter{},
	}
	for i, class := range []string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		m.classes[i] = requests.WithLabelValues(class)
	}
	for _, name := range []string{"tree", "asset", "answer"} {
		m.caches[name] = &[2]prometheus.Counter{caches.WithLabelValues(name, "miss"), caches.WithLabelValues(name, "hit")}
	}
	if reg != nil {
		reg.MustRegister(requests, caches, m.bytes, m.hosts)
	}
	return m
}

func (m *metrics) answered(status int, bytes int64) {
	class := status / 100
	if class < 1 || class > 5 {
		class = 0
	}
	m.classes[class].Inc()
	m.bytes.Add(float64(bytes))
}

func (m *metrics) cache(name string, hit bool) {
	i := 0
	if hit {
		i = 1
	}
	m.caches[name][i].Inc()
}
