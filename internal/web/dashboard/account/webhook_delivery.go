package account

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/text"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/web/dashboard/shell"
)

// Limits of untrusted text on a page, in bytes of HTML (a quotation mark takes five). Longer text is cut; the REST API
// returns all of it.
const (
	answersPerPage = 48 << 10
	requestPerPage = 16 << 10
)

// The list shows a delivery's last attempts and the start of the last response. The delivery's own page shows the rest.
const (
	attemptsInList = 3
	answerInList   = 160
)

// deliveryView adds display texts to a delivery.
type deliveryView struct{ webhook.Delivery }

// Word returns the delivery's display status.
func (v deliveryView) Word() string {
	switch v.State {
	case "succeeded":
		return "success"
	case "sending":
		return "pending"
	}
	return v.State
}

// Answered returns the last attempt's result in a word.
func (v deliveryView) Answered() string {
	if len(v.Attempts) == 0 {
		return ""
	}
	return attemptWord(v.Attempts[len(v.Attempts)-1])
}

// AttemptWord returns an attempt's result in a word.
func (v deliveryView) AttemptWord(a webhook.Attempt) string { return attemptWord(a) }

func attemptWord(a webhook.Attempt) string {
	if w, ok := delivery.Reasons[a.Error]; ok {
		return w
	}
	if a.Error != "" {
		return a.Error
	}
	return "HTTP " + strconv.Itoa(a.Status)
}

// deliveryLine is a delivery in its webhook's list.
type deliveryLine struct {
	deliveryView
	hook string // path of the webhook's page
}

// Path returns the path of the delivery's page.
func (l deliveryLine) Path() string { return l.hook + "/deliveries/" + string(l.ID) }

// Newest returns the last attempts, newest first.
func (l deliveryLine) Newest() []webhook.Attempt {
	var out []webhook.Attempt
	for i := len(l.Attempts) - 1; i >= 0 && len(out) < attemptsInList; i-- {
		out = append(out, l.Attempts[i])
	}
	return out
}

// Before returns the number of attempts not in Newest.
func (l deliveryLine) Before() int { return max(0, len(l.Attempts)-attemptsInList) }

// Begins returns the start of the last response.
func (l deliveryLine) Begins() string {
	if len(l.Attempts) == 0 {
		return ""
	}
	return text.Cut(l.Attempts[len(l.Attempts)-1].Answer, answerInList)
}

// fitting cuts s to at most *left bytes of HTML and subtracts its size from *left.
func fitting(s string, left *int) string {
	for i, c := range s {
		switch c {
		case '"', '\'', '&', '<', '>', '+', 0: // escaped by html/template
			*left -= len("&#34;")
		default:
			*left -= max(1, utf8.RuneLen(c))
		}
		if *left < 0 {
			*left = 0
			return s[:i] + "…"
		}
	}
	return s
}

type deliveryData struct {
	deliveryView
	Hook    webhook.Webhook
	Live    string
	Request string // indented body
	Copy    string // original body, or empty if it is long
}

func (d *Pages) deliveryData(ctx context.Context, q *shell.Request) (deliveryData, error) {
	w, err := d.Webhooks.Get(ctx, q.Caller.Owner, shell.PathID[webhook.ID](q, "webhook"))
	if err != nil {
		return deliveryData{}, err
	}
	x, err := d.Webhooks.Delivery(ctx, q.Caller.Owner, w.ID, shell.PathID[delivery.ID](q, "delivery"))
	if err != nil {
		return deliveryData{}, err
	}
	left := answersPerPage
	for i := len(x.Attempts) - 1; i >= 0; i-- { // start with the newest, which matter most
		for _, part := range []*string{&x.Attempts[i].Answer, &x.Attempts[i].Response, &x.Attempts[i].Request} {
			*part = fitting(*part, &left)
		}
	}
	left = requestPerPage
	data := deliveryData{
		deliveryView: deliveryView{x},
		Hook:         w,
		Live:         "/webhooks/" + string(w.ID) + "/deliveries/" + string(x.ID) + "/follow",
		Request:      fitting(pretty(x.Body), &left),
	}
	left = requestPerPage
	if fitting(x.Body, &left) == x.Body {
		data.Copy = x.Body
	}
	return data, nil
}

func (d *Pages) deliveryPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.deliveryData(ctx, q)
	return shell.Page("webhook_delivery", "Delivery of "+data.Event, data), err
}

// deliveryLive updates the attempts until the delivery has ended.
func (d *Pages) deliveryLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.deliveryData(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(2*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.deliveryData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "webhook_delivery", "delivery", data)
		return html, data.FinishedAt != 0, err
	}), nil
}

func (d *Pages) deliveriesLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Webhooks.Get(ctx, q.Caller.Owner, shell.PathID[webhook.ID](q, "webhook")); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(2*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.webhookData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "webhook_one", "deliveries", data)
		return html, false, err
	}), nil
}
