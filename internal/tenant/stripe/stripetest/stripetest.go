// Package stripetest owns a fake Stripe for tests: it stores objects, simulates payments, sends events, and injects
// faults.
//
// It implements the API calls that package stripe makes and the pages that owners see: one that takes a card, and a
// bank's.
package stripetest

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Stripe's test card numbers.
const (
	Fine         = "4242424242424242"
	ThreeDSecure = "4000002500003155" // the bank requires confirmation once
	Always       = "4000002760003184" // the bank requires confirmation of every payment
	Insufficient = "4000000000009995"
	Stolen       = "4000000000009979"
	Declined     = "4000000000000341"
)

// Fault is a failure of a request.
type Fault int

const (
	None     Fault = iota
	Before         // the connection ends before the effect
	After          // the connection ends after the effect
	Broken         // 500 before the effect
	Half           // 500 after the effect
	Busy           // 409: the key is in use
	Throttle       // 429
)

type object = map[string]any

// Server is the fake. It is safe for concurrent use.
type Server struct {
	URL    string // the server's own, for its pages
	Mock   string // Optional: address of stripe-mock, which validates each request.
	Key    string // Optional: the only valid API key.
	Rate   float64
	Random *rand.Rand

	mu      sync.Mutex // guards the fields below
	ahead   time.Duration
	n       int
	objects map[string]object
	order   []string // IDs in order of creation
	keys    map[string]kept
	next    []Fault
	Invalid []string // stripe-mock's complaints about requests
	Calls   map[string]int
}

type kept struct {
	params string
	status int
	body   []byte
	at     time.Time
}

// New returns a Server without faults.
func New() *Server {
	return &Server{Random: rand.New(rand.NewPCG(1, 2)), objects: map[string]object{}, keys: map[string]kept{}, Calls: map[string]int{}}
}

// Fail injects the faults into the next changing requests, in order.
func (s *Server) Fail(f ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, f...)
}

// Calm removes all faults.
func (s *Server) Calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.Rate = nil, 0
}

// Pass advances the clock.
func (s *Server) Pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	for _, o := range s.objects {
		if at, ok := o["expires_at"].(int64); ok && o["status"] == "open" && at <= s.now().Unix() {
			s.expire(o)
		}
	}
}

func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

// All returns copies of the objects whose ID has the prefix, oldest first.
func (s *Server) All(prefix string) (out []map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.order {
		if strings.HasPrefix(id, prefix+"_") {
			out = append(out, maps.Clone(s.objects[id]))
		}
	}
	return out
}

// Captured returns received money minus refunds and lost disputes, in Stripe's units.
func (s *Server) Captured() (n int64) {
	for _, pi := range s.All("pi") {
		n += pi["amount_received"].(int64)
	}
	for _, r := range s.All("re") {
		if r["status"] == "succeeded" {
			n -= r["amount"].(int64)
		}
	}
	for _, d := range s.All("du") {
		if d["status"] != "won" {
			n -= d["amount"].(int64)
		}
	}
	return n
}

func (s *Server) add(kind string, o object) object {
	s.n++
	id := fmt.Sprintf("%s_%s%06d", kind, "test", s.n)
	o["id"], o["created"], o["livemode"] = id, s.now().Unix(), false
	s.objects[id], s.order = o, append(s.order, id)
	return o
}

func (s *Server) emit(kind string, o object) {
	s.add("evt", object{
		"object": "event", "type": kind, "api_version": "2026-03-25.dahlia", "data": object{"object": maps.Clone(o)}, "pending_webhooks": 1,
		"request": nil,
	})
}

// Sign returns the signature header of an event's delivery.
func Sign(body []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// Event encodes an event.
func Event(e map[string]any) []byte {
	text, _ := json.Marshal(e)
	return text
}

func str(o object, name string) string { s, _ := o[name].(string); return s }

func (s *Server) fault() Fault {
	if len(s.next) > 0 {
		f := s.next[0]
		s.next = s.next[1:]
		return f
	}
	if s.Rate > 0 && s.Random.Float64() < s.Rate {
		return Fault(1 + s.Random.IntN(6))
	}
	return None
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		s.page(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.check(r, body)
	s.mu.Lock()
	status, answer, f := s.serve(r, body)
	s.mu.Unlock()
	if f == Before || f == After {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_test")
	w.WriteHeader(status)
	w.Write(answer)
}

func (s *Server) serve(r *http.Request, body []byte) (int, []byte, Fault) {
	s.Calls[r.Method+" "+strings.SplitN(strings.TrimPrefix(r.URL.Path, "/v1/"), "/", 2)[0]]++
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		return refuse(401, object{"type": "invalid_request_error", "message": "Invalid API Key"})
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return refuse(400, object{"type": "invalid_request_error", "message": err.Error()})
	}
	f := None
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		f = s.fault()
		if f == Busy {
			f = None
		}
		form = r.URL.Query()
	} else {
		f = s.fault()
	}
	switch f {
	case Before:
		return 0, nil, f
	case Broken:
		return refuse(500, object{"type": "api_error", "message": "broken"})
	case Busy:
		return refuse(409, object{"type": "idempotency_error", "code": "idempotency_key_in_use", "message": "in use"})
	case Throttle:
		return refuse(429, object{"type": "invalid_request_error", "code": "rate_limit", "message": "too many"})
	}
	if k, ok := s.keys[key]; ok && key != "" && s.now().Sub(k.at) < 24*time.Hour {
		if k.params != r.URL.Path+"?"+form.Encode() {
			return refuse(400,
				object{"type": "idempotency_error", "message": "Keys for idempotent requests can only be used with the same parameters"})
		}
		return k.status, k.body, f
	}
	status, o := s.call(r.Method, strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/"), form)
	answer, _ := json.Marshal(o)
	if f == Half {
		status, answer, _ = refuse(500, object{"type": "api_error", "message": "broken"})
	}
	if key != "" {
		s.keys[key] = kept{r.URL.Path + "?" + form.Encode(), status, answer, s.now()}
	}
	return status, answer, f
}

func refuse(status int, e object) (int, []byte, Fault) {
	text, _ := json.Marshal(object{"error": e})
	return status, text, None
}

func missing(id string) (int, object) {
	return 404, object{"error": object{"type": "invalid_request_error", "code": "resource_missing", "message": "No such object: " + id}}
}

func bad(message string) (int, object) {
	return 400, object{"error": object{"type": "invalid_request_error", "code": "parameter_invalid", "message": message}}
}

// metadata returns a form's values below a name, such as metadata[payment].
func metadata(form url.Values, name string) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		if rest, ok := strings.CutPrefix(k, name+"["); ok {
			out[strings.TrimSuffix(rest, "]")] = v[0]
		}
	}
	return out
}

// call performs a request.
func (s *Server) call(method string, path []string, form url.Values) (int, object) {
	kind, id := path[0], ""
	if kind == "checkout" {
		kind, path = "checkout/sessions", path[1:]
	}
	if len(path) > 1 {
		id = path[1]
	}
	o := s.objects[id]
	if id != "" && o == nil {
		return missing(id)
	}
	act := strings.Join(append([]string{method, kind}, path[min(2, len(path)):]...), " ")
	switch {
	case method == "GET" && id != "":
		return 200, s.expand(o, form)
	case method == "GET":
		return 200, s.list(kind, form)
	case act == "POST customers" && id == "":
		return 200, s.add("cus",
			object{"object": "customer", "metadata": metadata(form, "metadata"), "name": form.Get("name"), "email": form.Get("email")})
	case act == "DELETE customers":
		delete(s.objects, id)
		return 200, object{"id": id, "object": "customer", "deleted": true}
	case act == "POST checkout/sessions" && id == "":
		return s.session(form)
	case act == "POST checkout/sessions expire":
		if o["status"] != "open" {
			return bad("Only open sessions can be expired")
		}
		s.expire(o)
		return 200, o
	case act == "POST payment_intents" && id == "":
		return s.intent(form)
	case act == "POST payment_intents confirm":
		if o["status"] != "requires_payment_method" && o["status"] != "requires_confirmation" {
			return bad("This PaymentIntent's status doesn't allow it")
		}
		o["status"], o["last_payment_error"] = "requires_action", nil
		o["next_action"] = object{"type": "redirect_to_url", "redirect_to_url": object{
			"url": s.URL + "/3ds/" + id, "return_url": form.Get("return_url"),
		}}
		s.emit("payment_intent.requires_action", o)
		return 200, o
	case act == "POST payment_intents cancel":
		if o["status"] == "succeeded" || o["status"] == "canceled" {
			return bad("You cannot cancel this PaymentIntent")
		}
		o["status"] = "canceled"
		s.emit("payment_intent.canceled", o)
		return 200, o
	case act == "POST refunds" && id == "":
		return s.refund(form)
	}
	return 404, object{"error": object{"type": "invalid_request_error", "message": "Unrecognized request URL: " + act}}
}

var prefixes = map[string]string{
	"payment_intents": "pi", "refunds": "re", "disputes": "du", "events": "evt", "customers": "cus", "checkout/sessions": "cs",
	"payment_methods": "pm",
}

func (s *Server) list(kind string, form url.Values) object {
	most, _ := strconv.Atoi(cmp.Or(form.Get("limit"), "10"))
	from, _ := strconv.ParseInt(form.Get("created[gte]"), 10, 64)
	until, err := strconv.ParseInt(form.Get("created[lte]"), 10, 64)
	after, data, more := form.Get("starting_after"), []any{}, false
	for _, id := range slices.Backward(s.order) {
		o := s.objects[id]
		if o == nil || !strings.HasPrefix(id, prefixes[kind]+"_") || o["created"].(int64) < from || err == nil && o["created"].(int64) > until {
			continue
		}
		if after != "" {
			if id == after {
				after = ""
			}
			continue
		}
		skip := false
		for _, name := range []string{"customer", "payment_intent", "charge"} {
			skip = skip || form.Get(name) != "" && str(o, name) != form.Get(name)
		}
		if skip {
			continue
		}
		if len(data) == most {
			more = true
			break
		}
		data = append(data, o)
	}
	return object{"object": "list", "data": data, "has_more": more, "url": "/v1/" + kind}
}

func (s *Server) expand(o object, form url.Values) object {
	out := maps.Clone(o)
	for k, v := range form {
		if !strings.HasPrefix(k, "expand[") {
			continue
		}
		name, inner, _ := strings.Cut(v[0], ".")
		if got := s.objects[str(o, name)]; got != nil {
			got = maps.Clone(got)
			if deep := s.objects[str(got, inner)]; inner != "" && deep != nil {
				got[inner] = deep
			}
			out[name] = got
		}
	}
	return out
}

func (s *Server) session(form url.Values) (int, object) {
	at, _ := strconv.ParseInt(form.Get("expires_at"), 10, 64)
	if left := time.Unix(at, 0).Sub(s.now()); left < 30*time.Minute-5*time.Second || left > 24*time.Hour {
		return bad("expires_at must be between 30 minutes and 24 hours from creation")
	}
	o := object{
		"object": "checkout.session", "mode": form.Get("mode"), "customer": form.Get("customer"),
		"metadata": metadata(form, "metadata"), "status": "open",
		"expires_at": at, "success_url": form.Get("success_url"), "currency": form.Get("currency"), "payment_intent": nil, "setup_intent": nil,
	}
	if form.Get("mode") == "payment" {
		n, _ := strconv.ParseInt(form.Get("line_items[0][price_data][unit_amount]"), 10, 64)
		o["amount_total"], o["currency"] = n, form.Get("line_items[0][price_data][currency]")
		o["intent_metadata"] = metadata(form, "payment_intent_data[metadata]")
	}
	s.add("cs", o)
	o["url"] = s.URL + "/pay/" + str(o, "id")
	return 200, o
}

func (s *Server) expire(o object) {
	o["status"], o["url"] = "expired", nil
	s.emit("checkout.session.expired", o)
}

// card creates a payment method.
func (s *Server) card(customer, number string) object {
	return s.add("pm", object{"object": "payment_method", "type": "card", "customer": customer, "number": number, "card": object{
		"brand": "visa", "last4": number[len(number)-4:], "exp_month": 12, "exp_year": 2034, "fingerprint": "fp_" + number,
	}})
}

// Enter completes a page with a card, as an owner would.
func (s *Server) Enter(session, number string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(session, number)
}

func (s *Server) enter(session, number string) error {
	o := s.objects[session]
	if o == nil || o["status"] != "open" {
		return fmt.Errorf("the page %s isn't open", session)
	}
	if number == Stolen || number == Insufficient && o["mode"] == "payment" {
		return fmt.Errorf("your card was declined")
	}
	m := s.card(str(o, "customer"), number)
	if o["mode"] == "setup" {
		si := s.add("seti",
			object{"object": "setup_intent", "status": "succeeded", "payment_method": m["id"], "customer": o["customer"], "metadata": o["metadata"]})
		o["setup_intent"] = si["id"]
		s.emit("setup_intent.succeeded", si)
	} else {
		pi := s.add("pi", object{
			"object": "payment_intent", "amount": o["amount_total"], "amount_received": o["amount_total"], "currency": o["currency"],
			"customer":       o["customer"],
			"payment_method": m["id"], "status": "succeeded", "metadata": o["intent_metadata"], "setup_future_usage": "off_session",
			"last_payment_error": nil, "next_action": nil,
		})
		s.charge(pi)
		o["payment_intent"] = pi["id"]
		s.emit("payment_intent.succeeded", pi)
	}
	o["status"], o["url"] = "complete", nil
	s.emit("checkout.session.completed", o)
	return nil
}

func (s *Server) charge(pi object) {
	ch := s.add("ch", object{"object": "charge", "amount": pi["amount"], "payment_intent": pi["id"], "currency": pi["currency"]})
	pi["latest_charge"] = ch["id"]
}

// intent charges a stored card.
func (s *Server) intent(form url.Values) (int, object) {
	n, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	m := s.objects[form.Get("payment_method")]
	if err != nil || n < 50 {
		return 400, object{"error": object{"type": "invalid_request_error", "code": "amount_too_small", "message": "too small"}}
	}
	if m == nil || s.objects[form.Get("customer")] == nil || str(m, "customer") != form.Get("customer") {
		return missing(form.Get("payment_method"))
	}
	pi := s.add("pi", object{
		"object": "payment_intent", "amount": n, "amount_received": int64(0), "currency": form.Get("currency"), "customer": form.Get("customer"),
		"payment_method": m["id"], "metadata": metadata(form, "metadata"), "setup_future_usage": nil, "last_payment_error": nil,
		"next_action": nil, "status": "requires_payment_method",
	})
	s.emit("payment_intent.created", pi)
	fail := func(code, decline string) (int, object) {
		e := object{"type": "card_error", "code": code, "decline_code": decline, "message": "Your card was declined."}
		pi["last_payment_error"] = maps.Clone(e)
		s.emit("payment_intent.payment_failed", pi)
		e["payment_intent"] = maps.Clone(pi)
		return 402, object{"error": e}
	}
	switch str(m, "number") {
	case Always:
		return fail("authentication_required", "authentication_required")
	case Insufficient:
		return fail("card_declined", "insufficient_funds")
	case Stolen:
		return fail("card_declined", "stolen_card")
	case Declined:
		return fail("card_declined", "generic_decline")
	}
	s.succeed(pi)
	return 200, pi
}

func (s *Server) succeed(pi object) {
	pi["status"], pi["amount_received"], pi["next_action"] = "succeeded", pi["amount"], nil
	s.charge(pi)
	s.emit("payment_intent.succeeded", pi)
}

// Change replaces the number of all stored cards.
func (s *Server) Change(number string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.objects {
		if strings.HasPrefix(id, "pm_") {
			o["number"] = number
		}
	}
}

// Confirm completes a bank's page, confirming the payment or not.
func (s *Server) Confirm(intent string, confirmed bool) (back string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi := s.objects[intent]
	if pi == nil || pi["status"] != "requires_action" {
		return "", fmt.Errorf("the payment %s isn't to be confirmed", intent)
	}
	back = pi["next_action"].(object)["redirect_to_url"].(object)["return_url"].(string)
	if confirmed {
		s.succeed(pi)
		return back, nil
	}
	pi["status"], pi["next_action"] = "requires_payment_method", nil
	pi["last_payment_error"] = object{
		"type": "invalid_request_error", "code": "payment_intent_authentication_failure",
		"message": "not confirmed",
	}
	s.emit("payment_intent.payment_failed", pi)
	return back, nil
}

func (s *Server) refund(form url.Values) (int, object) {
	pi := s.objects[form.Get("payment_intent")]
	n, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if pi == nil || err != nil {
		return missing(form.Get("payment_intent"))
	}
	var done int64
	for _, o := range s.objects {
		if o["object"] == "refund" && o["payment_intent"] == pi["id"] && o["status"] != "failed" {
			done += o["amount"].(int64)
		}
	}
	if n <= 0 || done+n > pi["amount_received"].(int64) {
		return bad("The refund exceeds the payment")
	}
	o := s.add("re", object{
		"object": "refund", "amount": n, "currency": pi["currency"], "payment_intent": pi["id"], "charge": pi["latest_charge"],
		"status": "succeeded", "metadata": metadata(form, "metadata"),
	})
	s.emit("refund.created", o)
	s.emit("charge.refunded", s.objects[str(pi, "latest_charge")])
	return 200, o
}

// RefundHere refunds a payment as if in Stripe's dashboard.
func (s *Server) RefundHere(intent string, amount int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refund(url.Values{"payment_intent": {intent}, "amount": {fmt.Sprint(amount)}})
}

// Dispute opens a dispute of a payment.
func (s *Server) Dispute(intent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi := s.objects[intent]
	o := s.add("du", object{
		"object": "dispute", "amount": pi["amount"], "currency": pi["currency"], "payment_intent": intent, "charge": pi["latest_charge"],
		"status": "needs_response",
		"reason": "fraudulent", "metadata": object{},
	})
	s.emit("charge.dispute.created", o)
	return str(o, "id")
}

// Decide closes a dispute as won or lost.
func (s *Server) Decide(dispute, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[dispute]["status"] = status
	s.emit("charge.dispute.closed", s.objects[dispute])
}

// check validates a request with stripe-mock.
func (s *Server) check(r *http.Request, body []byte) {
	if s.Mock == "" {
		return
	}
	to := s.Mock + r.URL.Path
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	q, _ := http.NewRequest(r.Method, to, bytes.NewReader(body))
	q.Header.Set("Authorization", "Bearer sk_test_123")
	q.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	q.Header.Set("Stripe-Version", r.Header.Get("Stripe-Version"))
	res, err := http.DefaultClient.Do(q)
	why := ""
	if err != nil {
		why = err.Error()
	} else {
		defer res.Body.Close()
		if res.StatusCode >= 300 {
			text, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
			why = fmt.Sprint(res.StatusCode, " ", string(text))
		}
	}
	if why != "" {
		s.mu.Lock()
		s.Invalid = append(s.Invalid, fmt.Sprintf("%s %s %s: %s", r.Method, to, body, why))
		s.mu.Unlock()
	}
}

var pages = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>{{.Title}}</title>
<main><h1>{{.Title}}</h1>{{with .Problem}}<p role="alert">{{.}}</p>{{end}}<form method="post">
{{if .Bank}}<button name="do" value="confirm">Complete authentication</button> <button name="do" value="fail">Fail authentication</button>
{{else}}<label>Card number <input name="card" inputmode="numeric"></label> <button>{{.Button}}</button>{{end}}
</form></main></html>`))

// page serves Stripe's pages and a bank's.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	data := object{"Title": "Pay Acme", "Button": "Pay", "Bank": kind == "3ds" || kind == "bank", "Problem": ""}
	s.mu.Lock()
	o := s.objects[id]
	s.mu.Unlock()
	if o == nil {
		http.NotFound(w, r)
		return
	}
	if o["mode"] == "setup" {
		data["Title"], data["Button"] = "Save your card", "Save card"
	}
	if data["Bank"] == true {
		data["Title"] = "Your bank"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if r.Method != http.MethodPost {
		pages.Execute(w, data)
		return
	}
	card := strings.ReplaceAll(r.PostFormValue("card"), " ", "")
	switch kind {
	case "3ds": // confirms a charge
		back, err := s.Confirm(id, r.PostFormValue("do") == "confirm")
		if err == nil {
			http.Redirect(w, r, back, http.StatusSeeOther)
			return
		}
		data["Problem"] = err.Error()
	case "bank": // confirms an entered card
		if r.PostFormValue("do") == "confirm" {
			if err := s.Enter(id, r.URL.Query().Get("card")); err == nil {
				http.Redirect(w, r, str(o, "success_url"), http.StatusSeeOther)
				return
			}
		}
		http.Redirect(w, r, "/pay/"+id, http.StatusSeeOther)
		return
	default:
		if card == ThreeDSecure || card == Always {
			http.Redirect(w, r, "/bank/"+id+"?card="+card, http.StatusSeeOther)
			return
		}
		if len(card) != 16 {
			data["Problem"] = "Your card number is incomplete."
		} else if err := s.Enter(id, card); err != nil {
			data["Problem"] = "Your card was declined."
		} else {
			http.Redirect(w, r, str(o, "success_url"), http.StatusSeeOther)
			return
		}
	}
	pages.Execute(w, data)
}
