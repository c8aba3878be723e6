// Command epp is the Gateway API's endpoint picker with hitline's plug-ins. Its flags are the picker's.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/gateway-api-inference-extension/cmd/epp/runner"

	gatewayapi "github.com/hitline/hitline/integrations/gateway-api"
)

func main() {
	gatewayapi.Register()
	picker := runner.NewRunner().WithExecutableName("hitline epp")
	if picker.Run(ctrl.SetupSignalHandler()) != nil {
		os.Exit(1) // the runner has logged why
	}
}
