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

// What a page carries of texts that others wrote, in bytes of HTML, where a quotation
// mark is five. What is over is cut, and the REST interface has all of it.
const (
	answersPerPage = 48 << 10
	requestPerPage = 16 << 10
)

// In the list a delivery shows its last attempts and how the last answer begins; the
// rest stands on a page of its own.
const (
	attemptsInList = 3
	answerInList   = 160
)

// deliveryView is a delivery in people's words.
type deliveryView struct{ webhook.Delivery }

// Word is where it stands, in the words of the list of statuses.
func (v deliveryView) Word() string {
	switch v.State {
	case "succeeded":
		return "success"
	case "sending":
		return "pending"
	}
	return v.State
}

// Answered returns the result of the last attempt, in a word.
func (v deliveryView) Answered() string {
	if len(v.Attempts) == 0 {
		return ""
	}
	return attemptWord(v.Attempts[len(v.Attempts)-1])
}

// AttemptWord returns the result of one attempt, in a word.
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

// deliveryLine is a delivery in the list of its webhook.
type deliveryLine struct {
	deliveryView
	hook string // path of the webhook's page
}

// Path is where its page is.
func (l deliveryLine) Path() string { return l.hook + "/deliveries/" + string(l.ID) }

// Newest are the last attempts, the newest first.
func (l deliveryLine) Newest() []webhook.Attempt {
	var out []webhook.Attempt
	for i := len(l.Attempts) - 1; i >= 0 && len(out) < attemptsInList; i-- {
		out = append(out, l.Attempts[i])
	}
	return out
}

// Before is how many attempts there were before the newest.
func (l deliveryLine) Before() int { return max(0, len(l.Attempts)-attemptsInList) }

// Begins is how the last answer begins.
func (l deliveryLine) Begins() string {
	if len(l.Attempts) == 0 {
		return ""
	}
	return text.Cut(l.Attempts[len(l.Attempts)-1].Answer, answerInList)
}

// fitting cuts a text so that it takes no more bytes of HTML than are left, and takes
// them off.
func fitting(s string, left *int) string {
	for i, c := range s {
		switch c {
		case '"', '\'', '&', '<', '>', '+', 0: // html/template writes them as references
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
	Request string // the body, indented
	Copy    string // the body as it is, or empty where it is long
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
	for i := len(x.Attempts) - 1; i >= 0; i-- { // the newest say the most
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
	if left = requestPerPage; fitting(x.Body, &left) == x.Body {
		data.Copy = x.Body
	}
	return data, nil
}

func (d *Pages) deliveryPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.deliveryData(ctx, q)
	return shell.Page("webhook_delivery", "Delivery of "+data.Event, data), err
}

// deliveryLive sends the attempts again while there may be more.
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
