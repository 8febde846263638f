package main

import (
	"context"
	"errors"
	"os"
)

// adminKubeconfig is what the server reaches the cluster with here. In a pod it is
// the pod's ServiceAccount, with less rights.
const adminKubeconfig = "admin.kubeconfig"

// customResources goes on with the custom resources of the cluster, beside the
// directory.
func customResources(ctx context.Context, s *stage) {
	s.must(ctx, "gatehouse manifests --crds | kubectl --context admin apply --server-side -f -",
		succeeds, prints("sidecarprofiles.gatehouse.dev serverside-applied"))
	s.followCluster(ctx)
	s.must(ctx, "gatehouse manifests --url https://"+s.address+" --ca-file certs/ca.crt --config config --custom-resources |\n"+
		"  kubectl --context admin apply -f -", succeeds,
		prints("validatingwebhookconfiguration.admissionregistration.k8s.io/gatehouse configured"))
	s.until(ctx, "the API server asks about custom resources", func(ctx context.Context) error {
		apply := s.cluster.Kubectl(ctx, "create", "--dry-run=server", "-f", s.path("resources/tags.yaml"))
		if apply.Run() == nil {
			return errors.New("a policy with errors would be stored")
		}
		return nil
	})
	s.must(ctx, "kubectl --context admin apply -f resources/tracer.yaml", succeeds, prints("tracer created"))
	s.must(ctx, "kubectl --context admin wait --for=condition=Ready sidecarprofile/tracer", succeeds, prints("condition met"))
	s.note("This one fits the schema, and would never work.")
	s.must(ctx, "kubectl --context admin apply -f resources/tags.yaml",
		fails, prints(`The AdmissionPolicy "tags" is invalid: spec.validations[0].expression`, `did you mean "images"?`))
	s.must(ctx, "kubectl --context admin get gatehouse -A", succeeds, prints("tracer True InUse"))
	s.note("And how to be rid of it: what calls Gatehouse goes first.")
	s.must(ctx, "gatehouse uninstall --kubeconfig "+adminKubeconfig+" --dry-run | grep would", succeeds,
		prints("would remove MutatingWebhookConfiguration/gatehouse", "would remove ValidatingWebhookConfiguration/gatehouse"))
}

// followCluster replaces the server by one at the same address, with the same CA,
// that follows the cluster too.
func (s *stage) followCluster(ctx context.Context) {
	s.do(func() error { return os.Symlink(s.cluster.Kubeconfig(), s.path(adminKubeconfig)) })
	s.do(func() error { return s.cluster.CreateNamespace(ctx, "gatehouse-system", nil) })
	s.note("The server again, at the same address. In a pod it has --in-cluster in place of the kubeconfig.")
	s.do(func() error { return s.gatehouse.Kill() })
	s.serve(ctx, 6, "--config", configDir, "--custom-resources", "--kubeconfig", adminKubeconfig, "--listen", s.address, "--ops-listen", s.ops)
}
