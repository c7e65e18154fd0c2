package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway/internal/program/runtime"
)

const (
	// awayPatience limits a start's wait for an unresponsive API server.
	awayPatience = 5 * time.Minute
	awayPause    = 500 * time.Millisecond
)

const awayLine = "The cluster's API server does not answer. The program starts as soon as it does."

// away reports whether an error means that the API server is unavailable or overloaded, rather than that it refuses the
// request.
func away(err error) bool {
	var refused apierrors.APIStatus
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &refused):
		return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
	}
	var network net.Error // of the connection, or a client's timeout
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// patiently retries a repeatable step of a start until the API server responds, and tells the user once about the
// outage.
func (e *Engine) patiently(ctx context.Context, s *runtime.Spec, step func() error) error {
	told := false
	for late := time.Now().Add(awayPatience); ; {
		err := step()
		if !away(err) || time.Now().After(late) {
			return err
		}
		if !told && s.Output != nil {
			s.Output("system", awayLine)
		}
		told = true
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(awayPause):
		}
	}
}
