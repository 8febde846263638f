package login

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, NewCommand, NewLogoutCommand, NewWhoamiCommand, NewKubeconfigCommand)
}
