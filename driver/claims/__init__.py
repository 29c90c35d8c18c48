"""What a claim asks of us: results, configs, and the requests they mean for the solver."""
