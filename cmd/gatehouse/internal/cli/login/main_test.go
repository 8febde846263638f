package login

import (
	"os"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	// Tests never write to the keyring of whoever runs them.
	if err := os.Setenv(tokenStoreVariable, "file"); err != nil {
		panic(err)
	}
	clitest.Main(m, NewCommand, NewLogoutCommand, NewWhoamiCommand, NewKubeconfigCommand)
}
