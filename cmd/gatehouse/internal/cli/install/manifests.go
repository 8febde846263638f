// Package install has the commands about an install: manifests, probe and uninstall.
package install

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/drill"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// manifestsFlags are the flags of manifests.
type manifestsFlags struct {
	url, service          string
	caFile, certificates  string
	config, compiled      string
	name, namespace       string
	excludeNamespaces     []string
	includeResources      []string
	authentication        bool
	authorization         bool
	customResources, crds bool
	managed               bool
	logouts, audit, drill bool
	cluster               cli.ClusterFlags
	parts                 []string
	serviceAccount        string
	clientCert, clientKey string
	// kubeconfigPath is the path of the kubeconfig on the hosts of kube-apiserver.
	kubeconfigPath string
	// static is the webhook configuration to print as a file of kube-apiserver, "" for none.
	static string
}

// NewManifestsCommand returns the command "gatehouse manifests".
func NewManifestsCommand(s cli.Streams) *cobra.Command {
	var f manifestsFlags
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the webhook configurations and rights that a server needs",
		Long: `Manifests prints what a server needs from the API server, for kubectl apply: the
webhook configurations, and the rights with the reason for each. The Helm chart and
install.yaml have all of that; you need this command for a Deployment of your own,
or for a server outside of the cluster. With --authentication or --authorization it
prints the files with which kube-apiserver asks Gatehouse about tokens, and about the
scopes of tokens.

With --config, the API server sends exactly what the documents match: run manifests
again when they match something else. With --custom-resources and
--manage-registration, Gatehouse writes the rules itself when policies change. Say
where the CA of the serving certificate comes from: --ca-file, or --certificates.

Exit codes: 0 printed, 2 wrong usage, or an invalid configuration or CA.`,
		Example: `  # rules for the documents of a directory
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --config DIR | kubectl apply -f -

  # rules that follow custom resources
  gatehouse manifests --crds | kubectl apply --server-side -f -
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --custom-resources \
    --manage-registration | kubectl apply --server-side -f -

  # webhooks that nobody can delete with kubectl, in a file of kube-apiserver
  gatehouse manifests --url https://192.0.2.10:9443 --ca-file ca.crt --config DIR --static validating > /etc/kubernetes/webhooks/validating/gatehouse.yaml

  # the rights of audits, for the policies that are active
  gatehouse manifests --audit | kubectl apply -f -

  # the rights of those who run drill
  gatehouse manifests --drill | kubectl apply -f -

  # token reviews
  gatehouse manifests --authentication --url https://192.0.2.10:9443 --ca-file /etc/kubernetes/gatehouse/ca.crt \
    --client-cert /etc/kubernetes/gatehouse/client.crt --client-key /etc/kubernetes/gatehouse/client.key

  # the scopes of tokens, with the same files
  gatehouse manifests --authorization --url https://192.0.2.10:9443 --ca-file /etc/kubernetes/gatehouse/ca.crt \
    --client-cert /etc/kubernetes/gatehouse/client.crt --client-key /etc/kubernetes/gatehouse/client.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, notes, err := f.run(cmd)
			if err != nil {
				return err
			}
			for _, note := range notes {
				if _, err := fmt.Fprintf(s.Err, "gatehouse: note: %s\n", note); err != nil {
					return err
				}
			}
			_, err = s.Out.Write(text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "address of Gatehouse, https://HOST:PORT")
	flags.StringVar(&f.service, "service", "", "Service of Gatehouse, NAMESPACE/NAME[:PORT] (default port 443)")
	flags.StringVar(&f.caFile, "ca-file", "", "file of the CAs that verify the serving certificate, in PEM")
	flags.StringVar(&f.certificates, "certificates", "", "program that issues the serving certificate and writes its CA into the webhook configurations, in place of --ca-file: "+cli.OrList(certificateSources()))
	flags.StringVar(&f.serviceAccount, "service-account", "", "existing ServiceAccount of Gatehouse (default: one with the name of the objects, which is printed)")
	cli.AddConfigFlag(cmd, &f.config, "directory of documents that decide what the API server sends (default: new pods for injection, pods and workloads for validation)")
	flags.StringVar(&f.compiled, "compiled", "", "directory that gatehouse compile has written: nothing is sent for policies of --config that the API server wholly enforces by these documents; apply them before")
	flags.StringVar(&f.name, "name", "gatehouse", "name of the objects")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of Gatehouse (default: that of --service, else gatehouse-system)")
	flags.StringSliceVar(&f.excludeNamespaces, "exclude-namespace", nil, "more namespaces about which the API server sends nothing, such as those of network and storage drivers; repeatable")
	flags.StringSliceVar(&f.includeResources, "include-resource", nil, "resources that Gatehouse may add to its webhooks although they are sensitive: secrets, *.rbac.authorization.k8s.io for mutation, or * for rules with wildcards; needs --manage-registration")
	flags.BoolVar(&f.customResources, "custom-resources", false, "for serve --custom-resources: also register Gatehouse for its custom resources, and print the rights for that")
	flags.BoolVar(&f.managed, "manage-registration", false, "for serve --manage-registration: print webhooks without rules and selectors, and the right to write these; needs --custom-resources")
	flags.BoolVar(&f.logouts, "back-channel-logout", false, "for serve --back-channel-logout: also print the right to create and delete TokenRevocations; needs --custom-resources")
	flags.BoolVar(&f.audit, "audit", false, "for serve --audit-every: print only the rights to list what the active policies of the cluster match, or those of --config, and to write reports")
	flags.BoolVar(&f.drill, "drill", false, "print only a ClusterRole with the rights to run drill")
	f.cluster.Add(cmd)
	flags.StringVar(&f.static, "static", "", "print only this webhook configuration, mutating or validating, as a file of staticManifestsDir of kube-apiserver (Kubernetes 1.37); needs --url and --ca-file")
	flags.BoolVar(&f.crds, "crds", false, "print only the CustomResourceDefinitions of this version")
	flags.StringSliceVar(&f.parts, "part", nil, "print only this part: "+cli.OrList(partNames())+" (default: all)")
	flags.BoolVar(&f.authentication, "authentication", false, "print the kubeconfig for --authentication-token-webhook-config-file of kube-apiserver")
	flags.BoolVar(&f.authorization, "authorization", false, "print the AuthorizationConfiguration with which kube-apiserver asks serve --authorize about requests of tokens with a scope, and the kubeconfig that it names")
	flags.StringVar(&f.kubeconfigPath, "kubeconfig-path", "", "path of the kubeconfig on the hosts of kube-apiserver (default /etc/kubernetes/NAME/kubeconfig.yaml, with --authorization authorization-kubeconfig.yaml)")
	flags.StringVar(&f.clientCert, "client-cert", "", "path of the client certificate on the hosts of kube-apiserver")
	flags.StringVar(&f.clientKey, "client-key", "", "path of its key on the hosts of kube-apiserver")
	return cmd
}

// The values of --certificates.
const (
	certManager = "cert-manager"
	selfSigned  = "self-signed"
)

// certificateSources returns the values of --certificates.
func certificateSources() []string { return []string{certManager, selfSigned} }

// partNames returns the values of --part.
func partNames() []string {
	var names []string
	for _, part := range registration.Parts() {
		names = append(names, string(part))
	}
	return names
}

// notOneOf returns the error of a flag whose value is none of those that are allowed.
func notOneOf(flag, value string, allowed []string) error {
	text := fmt.Sprintf("--%s %.100q: must be %s", flag, value, cli.OrList(allowed))
	if hint := diagnostic.DidYouMean(value, allowed...); hint != "" {
		text += " (hint: " + hint + ")"
	}
	return errors.New(text)
}

// run returns what the flags select as text, and notes.
func (f *manifestsFlags) run(cmd *cobra.Command) ([]byte, []string, error) {
	if err := f.checkMode(cmd); err != nil {
		return nil, nil, err
	}
	switch {
	case f.crds:
		text, err := crds.YAML()
		return text, nil, err
	case f.audit:
		return f.auditRights(cmd.Context())
	case f.drill:
		rights, err := registration.ForDrill(registration.Options{Name: f.name}, drill.Kinds())
		if err != nil {
			return nil, nil, err
		}
		text, err := registration.YAML(`Made by "gatehouse manifests --drill", for "gatehouse drill".`, []registration.Document{rights})
		return text, nil, err
	case f.authentication, f.authorization:
		return f.forHosts()
	default:
		return f.forAdmission()
	}
}

// checkMode returns an error for each flag that has no effect with what is printed.
func (f *manifestsFlags) checkMode(cmd *cobra.Command) error {
	var mode string
	var allowed []string
	switch {
	case f.crds:
		mode = "crds"
	case f.audit:
		mode, allowed = "audit", append(cli.ClusterFlagNames(), "config", "name", "namespace", "service-account")
	case f.drill:
		mode, allowed = "drill", []string{"name"}
	case f.authentication:
		mode, allowed = "authentication", hostFlags()
	case f.authorization:
		mode, allowed = "authorization", hostFlags()
	}
	problems := []error{f.cluster.Check()}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch {
		case mode != "" && flag.Name != mode && !slices.Contains(allowed, flag.Name):
			problems = append(problems, fmt.Errorf("--%s has no effect with --%s", flag.Name, mode))
		case mode == "" && slices.Contains(cli.ClusterFlagNames(), flag.Name):
			problems = append(problems, fmt.Errorf("--%s is for --audit (hint: --kubeconfig-path is the path of the kubeconfig on the hosts of kube-apiserver)", flag.Name))
		case mode == "" && slices.Contains([]string{"client-cert", "client-key", "kubeconfig-path"}, flag.Name):
			problems = append(problems, fmt.Errorf("--%s is for --authentication and --authorization", flag.Name))
		}
	})
	return errors.Join(problems...)
}

// forAdmission returns what registers Gatehouse for admission, and notes.
func (f *manifestsFlags) forAdmission() ([]byte, []string, error) {
	o := registration.Options{
		Name: f.name, ExcludeNamespaces: f.excludeNamespaces, IncludeResources: f.includeResources,
		CustomResources: f.customResources, Logouts: f.logouts, Managed: f.managed,
		SelfSigned: f.certificates == selfSigned, ServiceAccount: f.serviceAccount,
	}
	if err := f.check(&o); err != nil {
		return nil, nil, err
	}
	o.Namespace = cmp.Or(f.namespace, o.Server.Namespace, install.DefaultNamespace)
	if f.caFile != "" {
		text, err := cli.ReadFile(f.caFile, 1)
		if err == nil {
			o.CABundle, err = registration.ParseCABundle(text, time.Now())
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--ca-file %s: %w", f.caFile, err)
		}
	}
	var compiled []string // notes
	if f.config != "" {
		c, err := loadConfig(f.config)
		if err != nil {
			return nil, nil, err
		}
		o.Spec = new(c.Spec())
		if f.compiled != "" {
			enforced, err := enforcedBy(f.compiled, c, o.Excluded())
			if err != nil {
				return nil, nil, err
			}
			o.Spec.Policy = compile.Without(o.Spec.Policy, enforced)
			for i := range enforced {
				compiled = append(compiled, enforced[i].Kind+"/"+enforced[i].Name+": "+enforced[i].Text)
			}
		}
	}
	admission, err := registration.ForAdmission(o)
	if err != nil {
		return nil, nil, err
	}
	header := fmt.Sprintf(`Made by "gatehouse manifests". If Gatehouse keeps you from repairing it:
kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration %s`, f.name)
	if admission.Serve != "" {
		header += fmt.Sprintf("\n\nThis is for Gatehouse in the namespace %q, which must be there first (kubectl create namespace %s), started as\nfollows, with flags besides as you like:\n%s", o.Namespace, o.Namespace, admission.Serve)
	}
	documents, notes := admission.Documents, slices.Concat(admission.Notes, compiled)
	if f.static != "" {
		if documents = registration.Static(documents, f.static); len(documents) == 0 {
			return nil, nil, fmt.Errorf("--static %s: nothing to print, because no policy or profile of the configuration needs this webhook", f.static)
		}
		// A comment that is a document of its own keeps the API server from reading the file.
		text, err := registration.YAML("", documents)
		return append([]byte(`# Made by "gatehouse manifests --static". If Gatehouse keeps you from repairing it:
# move this file out of staticManifestsDir on every host of kube-apiserver.
`), text...), notes, err
	}
	if len(f.parts) > 0 {
		var parts []registration.Part
		for _, name := range f.parts {
			parts = append(parts, registration.Part(name))
		}
		documents = registration.Only(documents, parts...)
		if !slices.Contains(parts, registration.PartRegistration) {
			notes = nil
		}
	}
	if len(documents) == 0 && len(f.parts) > 0 {
		return nil, nil, fmt.Errorf("--part %s: nothing to print with these flags", strings.Join(f.parts, ","))
	}
	text, err := registration.YAML(header, documents)
	return text, notes, err
}

// enforcedBy returns what the API server enforces of a configuration by the documents of a directory.
func enforcedBy(dir string, c *config.Config, excluded []string) ([]compile.Enforcement, error) {
	if err := cli.CheckDir("--compiled", dir); err != nil {
		return nil, err
	}
	documents, found := config.Inspect(dir)
	if err := found.Err(); err != nil {
		return nil, config.InvalidError(dir, err)
	}
	var all []metav1.Object
	for o := range documents.Objects("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding") {
		all = append(all, o.Object)
	}
	enforced, made, err := compile.EnforcedBy(c, excluded, all, time.Now())
	if err == nil && len(made) == 0 {
		err = fmt.Errorf("--compiled %s: has no document that gatehouse compile has made (hint: gatehouse compile --config DIR -o %[1]s)", cli.InertName(dir))
	}
	return enforced, err
}

// hostFlags are the flags for files on the hosts of kube-apiserver.
func hostFlags() []string {
	return []string{"url", "ca-file", "client-cert", "client-key", "name", "kubeconfig-path"}
}

// forHosts returns the files for the hosts of kube-apiserver, and notes.
func (f *manifestsFlags) forHosts() ([]byte, []string, error) {
	server, err := f.server()
	if err != nil {
		return nil, nil, err
	}
	dir := "/etc/kubernetes/" + f.name
	o := registration.KubeconfigOptions{Name: f.name, Server: server, CAFile: f.caFile, ClientCert: f.clientCert, ClientKey: f.clientKey}
	var document registration.Document
	if f.authorization {
		o.Path = cmp.Or(f.kubeconfigPath, dir+"/authorization-kubeconfig.yaml")
		document, err = registration.Authorization(o, dir+"/authorization.yaml")
	} else {
		o.Path = cmp.Or(f.kubeconfigPath, dir+"/kubeconfig.yaml")
		document, err = registration.Kubeconfig(o)
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := registration.YAML("", []registration.Document{document})
	return text, o.Notes(), err
}

// server returns the address of Gatehouse, which has no value if there is neither --url nor --service.
func (f *manifestsFlags) server() (server registration.Server, err error) {
	switch {
	case f.url != "" && f.service != "":
		return server, errors.New("--url and --service exclude each other")
	case f.url != "":
		if server, err = registration.ParseURL(f.url); err != nil {
			return server, fmt.Errorf("--url: %w", err)
		}
	case f.service != "":
		if server, err = registration.ParseService(f.service); err != nil {
			return server, fmt.Errorf("--service: %w", err)
		}
	}
	return server, nil
}

// check returns all errors of the flags for admission, and sets the server of the options.
func (f *manifestsFlags) check(o *registration.Options) error {
	var problems cli.Problems
	server, err := f.server()
	problems, o.Server = append(problems, err), server
	problems.Add(err == nil && server == (registration.Server{}), "the address of Gatehouse is missing (hint: --service NAMESPACE/NAME, or --url https://HOST:PORT)")
	switch {
	case f.certificates != "" && !slices.Contains(certificateSources(), f.certificates):
		problems = append(problems, notOneOf("certificates", f.certificates, certificateSources()))
	case f.certificates != "" && f.caFile != "":
		problems.Add(true, "--ca-file and --certificates exclude each other")
	case f.certificates == "" && f.caFile == "":
		problems.Add(true, "the CA is missing (hint: --ca-file, or --certificates %s)", cli.OrList(certificateSources()))
	}
	if f.static != "" && !slices.Contains(registration.StaticKinds(), f.static) {
		problems = append(problems, notOneOf("static", f.static, registration.StaticKinds()))
	}
	problems.Add(f.static != "" && (f.url == "" || f.caFile == ""), "--static needs --url and --ca-file: the API server calls such webhooks before it knows a Service, and nobody writes a CA into its files")
	problems.Add(f.static != "" && (f.managed || len(f.parts) > 0), "--static excludes --manage-registration and --part")
	problems.Add(f.logouts && !f.customResources, "--back-channel-logout needs --custom-resources: logouts are stored as TokenRevocations")
	problems.Add(f.managed && !f.customResources, "--manage-registration needs --custom-resources, with which replicas elect the one that writes the rules")
	problems.Add(f.managed && f.config != "", "--manage-registration and --config exclude each other: Gatehouse writes the rules")
	problems.Add(f.compiled != "" && f.config == "", "--compiled needs --config: the sources of the documents")
	problems.Add(f.compiled != "" && f.customResources, "--compiled and --custom-resources exclude each other: policies of the cluster may need what is left out (hint: serve --leave-compiled)")
	problems.Add(f.serviceAccount != "" && !f.customResources && f.certificates == "",
		"--service-account needs --custom-resources or --certificates: without, no rights are printed")
	for _, name := range f.parts {
		if !slices.Contains(partNames(), name) {
			problems = append(problems, notOneOf("part", name, partNames()))
		}
	}
	return problems.Err()
}

// loadConfig returns the configuration of a directory, which must be valid.
func loadConfig(dir string) (*config.Config, error) {
	c, _, found := config.CompileDir(dir)
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("--config %s: invalid configuration (hint: see gatehouse lint):\n%w", dir, config.WithPaths(dir, err))
	}
	return c, nil
}
