package install

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/scopes"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

// runScopes tries until the API server enforces the scopes of tokens, or the time is over.
func (f *probeFlags) runScopes(ctx context.Context, config *rest.Config, s cli.Streams) error {
	client, err := scopes.Client(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within --timeout %s", cli.FormatDuration(f.timeout)))
	defer cancel()
	for {
		now := scopes.Check(ctx, client)
		// What the end of the time interrupts says less than the attempt before.
		if err == nil || ctx.Err() == nil {
			err = now
		}
		if now == nil || !sleep.Context(ctx, probeInterval) {
			break
		}
	}
	switch {
	case errors.Is(err, scopes.ErrNotEnforced):
		return &cli.ExitError{Code: cli.ExitNo, Err: err}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s: enforces the scopes of tokens, also while Gatehouse does not answer\n", config.Host)
	return err
}
