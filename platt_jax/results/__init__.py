"""What a fit returns, and how it is shown, applied and stored."""
