package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	evanphx "gopkg.in/evanphx/json-patch.v4"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Injector returns a function that injects sidecars into the pod of a pod template, so
// that policies see what the mutating endpoint will make of it. It applies the patch by
// the same library as the API server.
func Injector(set *sidecar.Set) policy.Injector {
	return func(ctx context.Context, namespace, workload string, pod []byte) (text []byte, refusal string, err error) {
		d := set.Decide(sidecar.Input{Context: ctx, Namespace: namespace, Pod: pod, Checked: true, Workload: workload})
		switch {
		case d.Err != nil:
			return nil, "", d.Err
		case len(d.Refusals) > 0:
			return pod, d.Refusals[0].Message, nil
		case len(d.Patches) == 0:
			return pod, "", nil
		}
		raw, err := json.Marshal(d.Patches)
		if err != nil {
			return nil, "", fmt.Errorf("encode the patch: %w", err)
		}
		patch, err := evanphx.DecodePatch(raw)
		if err != nil {
			return nil, "", fmt.Errorf("read the patch: %w", err)
		}
		if text, err = patch.Apply(pod); err != nil {
			return nil, "", fmt.Errorf("apply the patch: %w", err)
		}
		return text, "", nil
	}
}
