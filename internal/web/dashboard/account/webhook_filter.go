package account

import (
	"slices"
	"strconv"

	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
	"slipway/internal/web/dashboard/shell"
)

// deliveryFilter is the filter of a webhook's deliveries and the page's other parameters.
type deliveryFilter struct {
	State, Event, Since string
	Span                string // of the chart
	Redelivery          string // operation to show
	Names               []string
}

// readDeliveryFilter reads the URL's parameters and ignores invalid ones.
func readDeliveryFilter(q *shell.Request, w webhook.Webhook) deliveryFilter {
	f := deliveryFilter{
		State:      q.Query("state"),
		Event:      q.Query("event"),
		Since:      q.Query("since"),
		Span:       q.Query("span"),
		Redelivery: q.Query("redelivery"),
	}
	if !slices.Contains([]string{"pending", "succeeded", "failed"}, f.State) {
		f.State = ""
	}
	if since(f.Since) == 0 {
		f.Since = ""
	}
	if len(f.Redelivery) > 40 {
		f.Redelivery = ""
	}
	f.Names = append(slices.Clone(w.Events), "ping")
	for _, e := range event.Catalogue(true) { // including events subscribed to while billing was on
		if e.Name == f.Event && !slices.Contains(f.Names, f.Event) {
			f.Names = append(f.Names, f.Event)
		}
	}
	if !slices.Contains(f.Names, f.Event) {
		f.Event = ""
	}
	return f
}

// Any reports whether the list is filtered.
func (f deliveryFilter) Any() bool { return f.State != "" || f.Event != "" || f.Since != "" }

// Pasts returns the selectable periods.
func (deliveryFilter) Pasts() any { return pasts }

func (f deliveryFilter) events() []string {
	if f.Event == "" {
		return nil
	}
	return []string{f.Event}
}

// link returns path with the filter and a page number.
func (f deliveryFilter) link(path string, page int) string {
	n := ""
	if page > 1 {
		n = strconv.Itoa(page)
	}
	return shell.Link(path, "state", f.State, "event", f.Event, "since", f.Since, "span", f.Span, "redelivery", f.Redelivery, "page", n)
}

// redelivery is the progress of a redelivery operation.
type redelivery struct {
	Status         string
	Percent        int
	Message, Error string
}

// Over reports whether the operation has ended.
func (r redelivery) Over() bool {
	return r.Status == "success" || r.Status == "failed" || r.Status == "canceled"
}
