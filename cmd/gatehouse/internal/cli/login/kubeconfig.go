package login

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// kubeconfigFlags are the flags of kubeconfig.
type kubeconfigFlags struct {
	loginFlags
	apiServer, apiServerCA string
	name                   string
	merge                  bool
	kubeconfig             string
	// program is what kubectl runs: gatehouse, or kubectl for its plugin.
	program string
}

// NewKubeconfigCommand returns the command "gatehouse kubeconfig".
func NewKubeconfigCommand(s cli.Streams) *cobra.Command {
	var f kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig --api-server URL",
		Short: "Write a kubeconfig with which kubectl logs in",
		Long: `Kubeconfig writes a kubeconfig with which kubectl logs in: to get a token, it runs
'gatehouse login' with the flags that you pass here. The file has no secret, so all
users can share it. Pass --server even if you use --issuer, because
'gatehouse whoami' and --scope need it.

With --merge, the entries are added to an existing kubeconfig. Entries of the same
name are replaced only if 'gatehouse kubeconfig' wrote them.

Exit codes: 0 written, 1 rejected, 2 wrong usage, or a file cannot be read or
written.`,
		Example: `  # for all users
  gatehouse kubeconfig --api-server https://192.0.2.1:6443 --api-server-ca cluster-ca.crt --name prod \
    --issuer https://dex.example --client-id kubernetes --issuer-scope groups --server https://192.0.2.10:9443 --server-ca ca.crt >kubeconfig

  # for yourself, with user name and password
  gatehouse kubeconfig --api-server https://192.0.2.1:6443 --api-server-ca cluster-ca.crt --name prod \
    --server https://192.0.2.10:9443 --server-ca ca.crt --username jane --merge`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.program, _, _ = strings.Cut(cmd.Root().DisplayName(), " ")
			return f.run(s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.apiServer, "api-server", "", "URL of the API server, https://HOST:PORT[/PATH] (required)")
	flags.StringVar(&f.apiServerCA, "api-server-ca", "", "file with the CAs of the API server's certificate, in PEM (default the system's)")
	flags.StringVar(&f.name, "name", "gatehouse", "name of the cluster, the user and the context")
	flags.BoolVar(&f.merge, "merge", false, "add the entries to a kubeconfig file, in place of printing a new one")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file for --merge (default the first of $KUBECONFIG, or ~/.kube/config)")
	f.add(flags)
	return cmd
}

func (f *kubeconfigFlags) run(s cli.Streams) error {
	made, err := f.make()
	if err != nil {
		return err
	}
	if f.merge {
		return f.mergeInto(s, made)
	}
	text, err := clientcmd.Write(*made)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(text)
	return err
}

// parseAPIServer reads the address of an API server, which may be one of several
// behind an address: then it has a path.
func parseAPIServer(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "":
		return "", fmt.Errorf("%q is not a URL (hint: https://192.0.2.1:6443)", strict.Cut(text, maxShownAddress))
	case u.User != nil:
		// Not repeated: it may hold a password.
		return "", errors.New("a URL with user information is not allowed")
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	u.Path, u.RawPath = "", ""
	server, err := registration.ParseURL(u.String())
	if err != nil {
		return "", err
	}
	return server.URL + path, nil
}

// maxShownAddress bounds what is repeated of an address that is none.
const maxShownAddress = 200

// make returns a kubeconfig with nothing else in it. It reports everything that is wrong with the
// flags at once.
func (f *kubeconfigFlags) make() (*clientcmdapi.Config, error) {
	var problems cli.Problems
	server, err := parseAPIServer(f.apiServer)
	problems.Add(f.apiServer == "", "--api-server is required: the URL of the API server")
	problems.Add(f.apiServer != "" && err != nil, "--api-server: %w", err)
	problems.Add(f.name == "", "--name must not be empty")
	problems.Add(f.kubeconfig != "" && !f.merge, "--kubeconfig is valid only with --merge")
	if err := append(problems, f.check()).Err(); err != nil {
		return nil, err
	}
	ca, _, err := readCAs("--api-server-ca", f.apiServerCA, "")
	if err != nil {
		return nil, err
	}
	args, err := f.args()
	if err != nil {
		return nil, err
	}
	exec := &clientcmdapi.ExecConfig{
		APIVersion:      clientauthenticationv1.SchemeGroupVersion.String(),
		Command:         f.program,
		Args:            append([]string{"login"}, args...),
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint:     "Logging in to this cluster needs the program gatehouse in PATH: https://github.com/gatehouse-dev/gatehouse",
	}
	if f.program == "kubectl" {
		exec.Args = append([]string{cli.PluginVerb}, exec.Args...)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[f.name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[f.name] = &clientcmdapi.AuthInfo{Exec: exec}
	config.Contexts[f.name] = &clientcmdapi.Context{Cluster: f.name, AuthInfo: f.name}
	config.CurrentContext = f.name
	return config, nil
}

// mergeInto puts the entries into a file, beside what is there.
func (f *kubeconfigFlags) mergeInto(s cli.Streams, made *clientcmdapi.Config) error {
	options := clientcmd.NewDefaultPathOptions()
	options.LoadingRules.WarnIfAllMissing = false
	file := cmp.Or(f.kubeconfig, options.GetDefaultFilename())
	options.LoadingRules.ExplicitPath = file
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	config, err := options.GetStartingConfig()
	if err != nil {
		return fmt.Errorf("%s: cannot be read: %w", file, err)
	}
	if err := f.conflict(config); err != nil {
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("%s: %w", file, err)}
	}
	config.Clusters[f.name] = made.Clusters[f.name]
	config.AuthInfos[f.name] = made.AuthInfos[f.name]
	config.Contexts[f.name] = made.Contexts[f.name]
	use := config.CurrentContext == ""
	if use {
		config.CurrentContext = f.name
	}
	if err := clientcmd.ModifyConfig(options, *config, false); err != nil {
		return fmt.Errorf("%s: cannot be written: %w", file, err)
	}
	text := fmt.Sprintf("context %s written to %s", cli.OneLine(f.name), file)
	if !use && config.CurrentContext != f.name {
		text += fmt.Sprintf("; the current context stays %s (hint: kubectl config use-context %s)", cli.OneLine(config.CurrentContext), shell.Quote(f.name))
	}
	_, err = fmt.Fprintln(s.Err, text)
	return err
}

// conflict returns an error if there are entries of this name that gatehouse kubeconfig
// did not write.
func (f *kubeconfigFlags) conflict(config *clientcmdapi.Config) error {
	if user := config.AuthInfos[f.name]; user != nil && isGatehouseLogin(user.Exec) {
		return nil
	}
	var there []string
	if config.Clusters[f.name] != nil {
		there = append(there, "a cluster")
	}
	if config.Contexts[f.name] != nil {
		there = append(there, "a context")
	}
	if config.AuthInfos[f.name] != nil {
		there = append(there, "a user")
	}
	if len(there) == 0 {
		return nil
	}
	return fmt.Errorf("has %s %q already, which '%s kubeconfig' did not write (hint: another --name)", strings.Join(there, " and "), f.name, cli.DisplayName(os.Args[0]))
}
