"""Theory: perturbations, iteration cost, convergence. No I/O."""
