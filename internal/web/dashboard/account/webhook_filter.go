package account

import (
	"slices"
	"strconv"

	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
	"slipway/internal/web/dashboard/shell"
)

// deliveryFilter narrows a webhook's deliveries, and says what else its page shows.
type deliveryFilter struct {
	State, Event, Since string
	Span                string // of the plot
	Redelivery          string // the operation to show
	Names               []string
}

// readDeliveryFilter reads the page's address; what it can't be asked for is left out.
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
	for _, e := range event.Catalogue(true) { // also one that it was subscribed to before
		if e.Name == f.Event && !slices.Contains(f.Names, f.Event) {
			f.Names = append(f.Names, f.Event)
		}
	}
	if !slices.Contains(f.Names, f.Event) {
		f.Event = ""
	}
	return f
}

// Any reports whether the list is narrowed.
func (f deliveryFilter) Any() bool { return f.State != "" || f.Event != "" || f.Since != "" }

// Pasts lists how far back the list can be narrowed to.
func (deliveryFilter) Pasts() any { return pasts }

func (f deliveryFilter) events() []string {
	if f.Event == "" {
		return nil
	}
	return []string{f.Event}
}

// link is a path with the filter and a page.
func (f deliveryFilter) link(path string, page int) string {
	n := ""
	if page > 1 {
		n = strconv.Itoa(page)
	}
	return shell.Link(path, "state", f.State, "event", f.Event, "since", f.Since, "span", f.Span, "redelivery", f.Redelivery, "page", n)
}

// redelivery is how far an operation is that redelivers.
type redelivery struct {
	Status         string
	Percent        int
	Message, Error string
}

// Over reports whether it has ended.
func (r redelivery) Over() bool {
	return r.Status == "success" || r.Status == "failed" || r.Status == "canceled"
}
