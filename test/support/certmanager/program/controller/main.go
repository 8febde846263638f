// Command controller runs cert-manager's controllers of issuers and certificates until it is told to end. It differs
// from cert-manager's own program of that name, whose module is not published, in what no test needs: it knows neither
// ACME, Vault and Venafi nor ingresses, elects no leader and serves no metrics. What it does set is as there by
// default.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	// They register themselves: what becomes of a Certificate, of a CertificateRequest and of an issuer, and the kinds
	// of issuers.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// workers is how many objects each controller works on at once.
const workers = 5

func main() {
	kubeconfig := flag.String("kubeconfig", "", "`file` that says which cluster, and who to be")
	namespace := flag.String("cluster-resource-namespace", "kube-system", "`namespace` of the Secrets that ClusterIssuers name")
	klog.InitFlags(nil)
	flag.Parse()
	err := run(controller.ContextOptions{
		Kubeconfig:         *kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: *namespace},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// run runs all controllers that are registered, until a signal comes.
func run(options controller.ContextOptions) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	shared, err := factory.Build()
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	for name, register := range controller.Known() {
		made, err := register(factory)
		if err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		group.Go(func() error { return made.Run(workers, ctx) })
	}
	// Only now, after every controller has said what it wants to be told about.
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait()
}
