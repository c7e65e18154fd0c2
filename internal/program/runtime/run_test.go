package runtime

import "context"

// Run runs a program to its end, such as a script that is needed once, and returns how it
// ended. The end of ctx stops it.
func Run(ctx context.Context, e Engine, s Spec) (Exit, error) {
	p, err := e.Start(ctx, s)
	if err != nil {
		return Exit{}, err
	}
	select {
	case <-p.Done():
		return p.Exit(), nil
	case <-ctx.Done():
		p.Stop(0)
		return Exit{}, context.Cause(ctx)
	}
}
