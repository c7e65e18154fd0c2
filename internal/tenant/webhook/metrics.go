package webhook

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/platform/db"
)

// metrics show operators whether due deliveries are being sent.
type metrics struct {
	attempts *prometheus.CounterVec
	first    prometheus.Histogram
	inFlight prometheus.Gauge
	oldest   prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_webhook_attempts_total",
			Help: "Requests made, by result: a status class or the kind of error.",
		}, []string{"outcome"}),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "slipway_webhook_first_attempt_seconds",
			Help:    "From the event to the start of its first request.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60},
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "slipway_webhook_in_flight", Help: "Requests in flight."}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slipway_webhook_oldest_due_seconds",
			Help: "Age of the oldest delivery that is due and not under way, of any endpoint.",
		}),
	}
	for _, class := range []string{"2xx", "3xx", "4xx", "5xx"} { // a rate needs an initial zero
		m.attempts.WithLabelValues(class)
	}
	if r != nil {
		r.MustRegister(m.attempts, m.first, m.inFlight, m.oldest)
	}
	return m
}

func (m *metrics) saved(done []outcome) {
	for _, o := range done {
		switch {
		case o.Abandoned:
			continue
		case o.Err != "":
			m.attempts.WithLabelValues(o.Err).Inc()
		default:
			m.attempts.WithLabelValues(strconv.Itoa(o.Status/100) + "xx").Inc()
		}
		if o.Number == 1 {
			m.first.Observe(o.Started.Sub(o.created).Seconds())
		}
	}
}

// measure updates the gauges of overdue deliveries over all endpoints.
func (w *Webhooks) measure(ctx context.Context) {
	now := db.Now()
	var at db.Time
	err := w.c.DB.QueryRow(ctx, `
		SELECT min((SELECT min(next_at) FROM webhook_deliveries d WHERE d.hook_id = h.id AND d.state = 'pending'))
		FROM webhooks h WHERE active AND deleted_at = 0`).Scan(&at)
	if err != nil {
		return // measured again within seconds
	}
	age := 0.0
	if at != 0 && at < now {
		age = now.Sub(at).Seconds()
	}
	w.metrics.oldest.Set(age)
}
