package response

import (
	"net/http"
	"time"
)

// BodyTime is the time limit for request bodies that no handler reads. Without it, net/http would wait for the rest
// forever before it answers.
const BodyTime = 10 * time.Second

// Bound sets the deadlines of our own responses. They don't read the request's body, so a body that hasn't arrived
// within bodyTime closes the connection, and so does a visitor who doesn't read.
func Bound(w http.ResponseWriter, r *http.Request, bodyTime time.Duration) {
	Deadline(w, 0)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// Deadline limits the time to send size bytes to a minute plus size at 16 KiB/s. It applies until the connection's next
// response sets its own.
func Deadline(w http.ResponseWriter, size int64) {
	// Writers in tests may not support deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute + time.Duration(size>>14)*time.Second))
}
