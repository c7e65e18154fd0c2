package contract

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Patiently returns a writer for a long answer, see patient.
func Patiently(ctx context.Context, w http.ResponseWriter) io.Writer {
	return &patient{ctx: ctx, w: w, conn: http.NewResponseController(w)}
}

// patient writes as long as the client reads something every sendTime and ctx lasts.
type patient struct {
	ctx  context.Context
	w    io.Writer
	conn *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	p.conn.SetWriteDeadline(time.Now().Add(SendTime))
	return p.w.Write(b)
}
