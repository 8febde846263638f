package certificates

import (
	"context"
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// setBundle writes a bundle over whatever is there. Without one it takes away what is there.
func (h *hook) setBundle(ctx context.Context, bundle []byte) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}})
	if err != nil {
		return err
	}
	_, err = h.configurations().Patch(ctx, h.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
	return err
}

func (h *hook) configurations() interface {
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, sub ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
} {
	return h.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
}
